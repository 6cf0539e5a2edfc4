"""What the recorder costs an iteration: ``python tests/benchmarks/bench_recorder.py``.

Process CPU time, since wall time on a shared host measures the neighbours; the variants take turns in rounds,
so that all of them see the same clock speed, and the median round is printed with its quartiles.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable

import torch

from perfsweep.pipelines.trial.timing.clock import HostClock
from perfsweep.pipelines.trial.timing.recorder import Recorder

ROUNDS = 31
ITERATIONS = 20_000
PHASES = 6

GOAL_ITERATION_NS = 300
GOAL_PHASE_NS = 600

PAIRS = 200
BODIES = 20
BODY_ENTRIES = 50_000
BODY_PASSES = 50
GOAL_BODY_PERCENT = 0.5


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


def body(work: torch.Tensor) -> None:
    """About a millisecond of arithmetic that stays in the cache."""
    for _ in range(BODY_PASSES):
        work.sin_()


def body_ns(recorder: Recorder | None, work: torch.Tensor) -> float:
    """CPU time of one iteration of about a millisecond, with a lap and one phase each if there is a
    recorder."""
    before = time.process_time_ns()
    for _ in range(BODIES):
        if recorder is None:
            body(work)
        else:
            with recorder.phase("step"):
                body(work)
            recorder.lap()
    return (time.process_time_ns() - before) / BODIES


def perturbation() -> tuple[float, list[float]]:
    """Median time of the body alone [ms], and what recording adds to it in each pair of blocks [%]."""
    torch.set_num_threads(1)
    work = torch.rand(BODY_ENTRIES)
    recorder = Recorder(HostClock())
    recorder.start()
    alone, added = [], []
    for number in range(PAIRS):
        order = (None, recorder) if number % 2 else (recorder, None)
        times = {one is None: body_ns(one, work) for one in order}
        alone.append(times[True] / 1e6)
        added.append(100 * (times[False] / times[True] - 1))
    recorder.stop()
    return statistics.median(alone), added


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
    body_ms, added = perturbation()
    added.sort()
    reach = math.ceil(0.98 * math.sqrt(PAIRS))  # ranks that enclose the median in 95 % of samples
    low, middle, high = added[PAIRS // 2 - reach], statistics.median(added), added[PAIRS // 2 + reach]
    print(
        f"a body of {body_ms:.2f} ms with one phase: {middle:+.3f} % (95 % interval of the median {low:+.3f}"
        f" to {high:+.3f}, {PAIRS} pairs of blocks), goal {GOAL_BODY_PERCENT}"
    )


if __name__ == "__main__":
    main()
