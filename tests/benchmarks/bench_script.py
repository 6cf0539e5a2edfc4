"""What marks and hooks cost a script: processor time of an iteration under control against the same by hand.

    python tests/benchmarks/bench_script.py [--rounds 10]

Both run in forked processes of their own, interleaved; the iteration is as small as one can be, so that the
difference is the cost of control itself.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from loops import HEAD, STEP

from perfsweep.workloads.api import Context, Device, Levels, NullClock
from perfsweep.workloads.script.config import ScriptConfig
from perfsweep.workloads.script.workload import Script

BLOCKS, ITERATIONS = 20, 500


def by_hand() -> float:
    """Nanoseconds of an iteration of the loop as it stands."""
    scope: dict[str, object] = {}
    body = STEP.replace("\n    ", "\n        ")
    code = f"{HEAD}\ndef block():\n    for _ in range({ITERATIONS}):{body}\n"
    exec(compile(code, "loop", "exec"), scope)
    block: Callable[[], None] = scope["block"]  # type: ignore[assignment]
    return quickest(block)


def controlled(levels: Levels) -> float:
    """Nanoseconds of an iteration of the same loop as a script."""
    folder = Path(tempfile.mkdtemp())
    body = STEP.replace("\n    ", "\n        ")
    (folder / "train.py").write_text(f"{HEAD}\ndef main():\n    while True:{body}\nmain()\n")
    config = Script.planned(ScriptConfig(path="train.py", folder=str(folder)))
    cls = Script.configured(config)
    script, clock = cls(), NullClock()
    naive = {toggle.name: toggle.levels[0].value for toggle in cls.toggles}
    script.setup(config, {**naive, **levels}, Context(Device(), folder, folder))

    def block() -> None:
        for _ in range(ITERATIONS):
            script.step(clock)

    return quickest(block)


def quickest(block: Callable[[], None]) -> float:
    """Processor time of an iteration in the quickest block, which nobody disturbed."""
    block()
    times = []
    for _ in range(BLOCKS):
        start = time.process_time_ns()
        block()
        times.append((time.process_time_ns() - start) / ITERATIONS)
    return min(times)


def in_a_process(measure: Callable[[], float]) -> float:
    """What `measure` returns in a forked process."""
    read, write = os.pipe()
    if os.fork() == 0:
        import torch

        torch.set_num_threads(1)
        os.write(write, repr(measure()).encode())
        os._exit(0)
    os.wait()
    value = float(os.read(read, 100))
    os.close(read)
    os.close(write)
    return value


def main() -> None:
    """Print the cost in microseconds, and that of each level named."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=10)
    rounds = parser.parse_args().rounds
    pairs = [(in_a_process(by_hand), in_a_process(lambda: controlled({}))) for _ in range(rounds)]
    more = sorted((script - hand) / 1e3 for hand, script in pairs)
    hand = statistics.median(one for one, _ in pairs) / 1e3
    print(f"by hand {hand:.1f} us an iteration; as a script {statistics.median(more):+.1f} us")
    print(f"the middle half of {rounds} rounds: {more[rounds // 4]:+.1f} to {more[-1 - rounds // 4]:+.1f} us")


if __name__ == "__main__":
    main()
