"""What tracking costs a sweep: the same sweep with run folders and without, in turns.

    python tests/benchmarks/bench_tracking.py --pairs 3 --arms 4

Prints, for each pair, the length of the command with tracking divided by its length without, for wall time
and for the processor time of all its processes. Iterations take about 10 ms.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

SUPPORT = Path(__file__).parents[1] / "support"


@dataclass(frozen=True)
class Cost:
    """Length of one command: wall time and processor time of it and its children, seconds."""

    wall_s: float
    cpu_s: float


def sweep(mode: str, arms: int, rounds: int) -> Cost:
    """Run a sweep of the toy from nothing."""
    levels = ",".join(str(2**number) for number in range(1, arms))
    command = [
        sys.executable,
        "-m",
        "perfsweep.pipelines.cli",
        "sweep",
        "workload=toys.spinner:Spinner",
        "name=toy",
        f"tracking={mode}",
    ]
    command += [
        f"axes.slab=[{levels}]",
        "workload.products=1200",
        f"measure.rounds={rounds}",
        "measure.iterations=60",
    ]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "PYTHONPATH": str(SUPPORT), "OMP_NUM_THREADS": "1"}
        subprocess.run(command, cwd=folder, env=env, stdout=subprocess.DEVNULL, check=True)
    wall_s = time.monotonic() - started
    _reap()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Cost(wall_s, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def adopt() -> None:
    """Become the parent of processes whose parent has ended, such as fork servers: their time counts too."""
    pr_set_child_subreaper = 36
    ctypes.CDLL(None).prctl(pr_set_child_subreaper, 1)


def _reap() -> None:
    while True:
        try:
            os.wait()
        except ChildProcessError:
            return


def main() -> None:
    """Alternate which of the two comes first."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--arms", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=8)
    given = parser.parse_args()
    adopt()
    walls, cpus = [], []
    for pair in range(given.pairs):
        order = ("offline", "disabled") if pair % 2 else ("disabled", "offline")
        cost = {mode: sweep(mode, given.arms, given.rounds) for mode in order}
        walls.append(cost["offline"].wall_s / cost["disabled"].wall_s)
        cpus.append(cost["offline"].cpu_s / cost["disabled"].cpu_s)
        print(
            f"pair {pair}: without {cost['disabled']}, wall x{walls[-1]:.3f}, processor x{cpus[-1]:.3f}",
            flush=True,
        )
    print(f"median of {given.pairs}: wall x{median(walls):.3f}, processor x{median(cpus):.3f}")


if __name__ == "__main__":
    main()
