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
    change = "no time" if effect["ratio"] is None else f"{effect['ratio'] - 1:+.1%} time"
    print(f"{effect['toggle']}={effect['level']}: {change}, {effect['verdict'] or effect['reason']}")
print("report:", sweep.report().path)
