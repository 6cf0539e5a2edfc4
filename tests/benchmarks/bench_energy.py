"""What reading the counters of energy costs a trial: ``python tests/benchmarks/bench_energy.py``.

Processor time, since wall time on a shared host measures the neighbours. Counters are read before a region
and after it, so that inside it there is nothing to pay for: `inside` compares regions with and without them,
in pairs whose order alternates. `beside` is what both readings take, as a share of the shortest region that
has an energy at all. Where the machine has no RAPL, a folder of files like the kernel's stands in: a real one
takes longer to read, by what the counter itself needs.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch

sys.path.append(str(Path(__file__).parents[1] / "support"))

from powercap import FakePowercap

from perfsweep.pipelines.trial.machine import energy_counters
from perfsweep.pipelines.trial.machine.energy import WORST_SHARE
from perfsweep.pipelines.trial.machine.energy_counters import RAPL_STEP_S, Unreadable, processor_counters
from perfsweep.pipelines.trial.timing.clock import HostClock
from perfsweep.pipelines.trial.timing.quantities import Meter
from perfsweep.pipelines.trial.timing.recorder import Recorder

PAIRS = 40
ITERATIONS = 8
ENTRIES, PASSES = 50_000, 50
GOAL_PERCENT = 0.5


def readable() -> bool:
    """Whether this machine tells."""
    try:
        with processor_counters():
            return True
    except Unreadable:
        return False


def region_ns(meter: Meter | None, work: torch.Tensor) -> tuple[int, int]:
    """CPU time inside a region of some 50 ms, as the record has it, and of the readings around it."""
    clock = HostClock()
    recorder = Recorder(clock)
    before = time.process_time_ns()
    if meter is not None:
        meter.forget()
        meter.begin()
    around = time.process_time_ns() - before
    recorder.start()
    for _ in range(ITERATIONS):
        for _ in range(PASSES):
            work.sin_()
        recorder.lap()
    recorder.stop()
    before = time.process_time_ns()
    if meter is not None:
        meter.end()
    return recorder.series().region_cpu_ns, around + time.process_time_ns() - before


def measured() -> tuple[list[float], list[int]]:
    """What meters add inside each pair of regions [%], and the CPU time of the readings around them [ns]."""
    torch.set_num_threads(1)
    work, meter = torch.rand(ENTRIES), Meter(HostClock())
    added, around = [], []
    for number in range(PAIRS):
        order = (None, meter) if number % 2 else (meter, None)
        found = {one is None: region_ns(one, work) for one in order}
        added.append(100 * (found[False][0] / found[True][0] - 1))
        around.append(found[False][1])
    meter.close()
    return added, around


def main() -> None:
    """Print both costs beside the goal."""
    with tempfile.TemporaryDirectory() as folder:
        source = "RAPL of this machine"
        if not readable():
            source = "a stand-in of two packages"
            energy_counters.POWERCAP = Path(folder)
            FakePowercap(Path(folder), packages=2)
        added, around = measured()
    shortest_ns = RAPL_STEP_S / WORST_SHARE * 1e9
    middle, error = statistics.median(added), 1.25 * statistics.stdev(added) / PAIRS**0.5
    beside = statistics.median(around)
    print(f"{source}, {PAIRS} pairs of regions")
    print(f"inside a region: {middle:+.3f} % +- {1.96 * error:.3f} (goal: at most {GOAL_PERCENT} %)")
    print(
        f"beside it: {beside / 1e3:.0f} us for both readings, {100 * beside / shortest_ns:.3f} % of the"
        f" shortest region with an energy, {shortest_ns / 1e6:.0f} ms"
    )


if __name__ == "__main__":
    main()
