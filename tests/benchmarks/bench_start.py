"""How soon a forked trial runs: ``python tests/benchmarks/bench_start.py``.

From the parent's call to the first line of the trial, which has torch and the workload imported by then;
beside it the same by exec. The trials refuse their spec at once, so nothing else is in the figure.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

from perfsweep.pipelines.execution.forks import ForkServer
from perfsweep.pipelines.execution.spawn import Exec, wait
from perfsweep.pipelines.store.options import MeasureConfig
from perfsweep.pipelines.store.records import Arm, Kind, TrialSpec, read_record, write_spec

STARTS = {"fork": 60, "exec": 5}
GOAL_FORK_MS = 40


def start_ms(starter: ForkServer | Exec, folder: Path) -> float:
    """Milliseconds until the trial runs."""
    spec = TrialSpec(
        sweep="start",
        workload="digits",
        config={},
        arm=Arm(id="a", label="a", levels={}),
        kind=Kind.TIMING,
        pack="p000",
        round=0,
        attempt=1,
        measure=MeasureConfig(),
        code="no code has this digest",
        cache_dir=str(folder),
    )
    folder.mkdir()
    file = write_spec(folder, spec)
    called = time.time()
    wait(starter.start(file, 1, {}), 60)
    return 1e3 * (read_record(folder).started - called)


def main() -> None:
    """Print the median and the quartiles of each way to start."""
    with tempfile.TemporaryDirectory() as scratch:
        for name, starter in {
            "fork": ForkServer(["perfsweep.workloads.digits.workload"]),
            "exec": Exec(),
        }.items():
            start_ms(starter, Path(scratch) / f"{name}-first")  # starts the server, which imports
            values = [start_ms(starter, Path(scratch) / f"{name}-{number}") for number in range(STARTS[name])]
            low, middle, high = statistics.quantiles(values, n=4)
            goal = f", goal {GOAL_FORK_MS}" if name == "fork" else ""
            print(f"{name}: {middle:.1f} ms (quartiles {low:.1f} to {high:.1f}, {len(values)} starts){goal}")


if __name__ == "__main__":
    main()
