"""A sweep from Python: measure, and read the effects as a table.

    python sweep_from_python.py

takes about a minute. Options of `perfsweep sweep` follow the name, here for narrower intervals:

    python sweep_from_python.py measure.rounds=12

A second call measures nothing again. It reads what is in the folder runs/optimizers.
"""

import sys

import perfsweep

sweep = perfsweep.sweep(
    *sys.argv[1:],
    workload={"name": "digits", "width": 32},
    sweep="demo",  # how long a trial is; axes say which toggles it measures
    axes={"optimizer": ["foreach", "fused"]},
    tracking="disabled",
    name="optimizers",
)

for effect in sweep.effects.iter_rows(named=True):
    speed = "no time" if effect["speed"] is None else f"{effect['speed']:.3f}x the speed"
    print(f"{effect['name']}: {speed}, {effect['verdict']}; {effect['todo']}")
print("use:", sweep.recommended or "nothing is faster")
print("report:", sweep.report().path)
