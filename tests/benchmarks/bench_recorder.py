"""What the recorder costs an iteration: ``python tests/benchmarks/bench_recorder.py``.

Process CPU time, since wall time on a shared host measures the neighbours; the variants take turns in rounds, so that
all of them see the same clock speed, and the median round is printed with its quartiles.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from pipelines.measure.clock import HostClock
from pipelines.measure.recorder import Recorder

ROUNDS = 31
ITERATIONS = 20_000
PHASES = 6

GOAL_ITERATION_NS = 300
GOAL_PHASE_NS = 600


def run_laps(recorder: Recorder) -> None:
    """Iterations that do nothing and mark nothing."""
    for _ in range(ITERATIONS):
        recorder.lap()


def run_phases(recorder: Recorder) -> None:
    """Iterations of six empty phases, five of them inside an outer one."""
    for _ in range(ITERATIONS):
        with recorder.phase("step"):
            with recorder.phase("load"):
                pass
            with recorder.phase("forward"):
                pass
            with recorder.phase("loss"):
                pass
            with recorder.phase("backward"):
                pass
            with recorder.phase("update"):
                pass
        recorder.lap()


def cpu_ns_per_iteration(run: Callable[[Recorder], None]) -> float:
    """CPU time of one iteration, packing of full lists included."""
    recorder = Recorder(HostClock())
    recorder.start()
    before = time.process_time_ns()
    run(recorder)
    spent = time.process_time_ns() - before
    recorder.stop()
    return spent / ITERATIONS


def spread(values: list[float]) -> str:
    """Median and quartiles."""
    low, middle, high = statistics.quantiles(values, n=4)
    return f"{middle:6.0f} ns (quartiles {low:.0f} to {high:.0f})"


def main() -> None:
    """Print CPU time per iteration and per phase beside the goals."""
    pairs = [(cpu_ns_per_iteration(run_laps), cpu_ns_per_iteration(run_phases)) for _ in range(ROUNDS)]
    laps = [lap for lap, _ in pairs]
    phases = [(whole - lap) / PHASES for lap, whole in pairs]
    print(f"median of {ROUNDS} interleaved rounds of {ITERATIONS} iterations, process CPU time")
    print(f"iteration without phases  {spread(laps)}, goal {GOAL_ITERATION_NS}")
    print(f"each phase                {spread(phases)}, goal {GOAL_PHASE_NS}")


if __name__ == "__main__":
    main()
