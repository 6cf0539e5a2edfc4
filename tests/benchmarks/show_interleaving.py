"""A sweep on a machine that slows down while it is measured, in rounds and one arm after the other.

``python tests/benchmarks/show_interleaving.py``. The arm does 10 % more work than its base, so it is slower,
whatever the machine does. Between the first trial and the last, busy processes take a growing share of its
cores away, in the same way for both orders. Arms that take turns in rounds share what happens; an arm
measured before its base does not.
"""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path

from perfsweep.pipelines.analysis import collect, compare
from perfsweep.pipelines.analysis.effect_result import EffectResult
from perfsweep.pipelines.config.types import DesignConfig, MeasureConfig, SweepCommand, SweepConfig
from perfsweep.pipelines.execution import launch
from perfsweep.pipelines.execution.pack import PackRun
from perfsweep.pipelines.plan import plan
from perfsweep.pipelines.store.records import Kind, SweepFolder
from perfsweep.pipelines.trial.machine import environment

ROUNDS = 16
DELAY = 10
TRUTH = 1 + DELAY / 100
IDLE = 19
"""Niceness at the start, where a process at 0 keeps nearly all of its core; at the end, at 0, it keeps a
third."""

BURNERS_PER_CORE = 2


@dataclass(frozen=True)
class Turn:
    """One trial: the arm with this id, in this round."""

    arm: str
    number: int


def in_rounds(orders: Sequence[Sequence[str]]) -> list[Turn]:
    """As the plan has it: every arm once a round."""
    return [Turn(arm, number) for number, order in enumerate(orders) for arm in order]


def one_after_the_other(arms: Sequence[str]) -> list[Turn]:
    """All trials of one arm, then all of the next."""
    return [Turn(arm, number) for arm in arms for number in range(ROUNDS)]


def burn(core: int, niceness: int) -> None:
    """Keep a core busy until killed, at a priority that leaves the others most of it or little."""
    os.sched_setaffinity(0, {core})
    os.nice(niceness)
    while os.getppid() > 1:
        sum(range(100_000))


class Load:
    """Busy processes on every core, whose priority rises with the progress of the sweep."""

    def __init__(self) -> None:
        self._cores = sorted(os.sched_getaffinity(0)) * BURNERS_PER_CORE
        self._burning: list[BaseProcess] = []
        self._niceness = IDLE
        self._context = multiprocessing.get_context("fork")

    def reach(self, progress: float) -> None:
        """Take the share of the cores that belongs to this share of the sweep."""
        niceness = round(IDLE * (1 - progress))
        if niceness == self._niceness:
            return
        self.end()
        self._niceness = niceness
        self._burning = [
            self._context.Process(target=burn, args=(core, niceness), daemon=True) for core in self._cores
        ]
        for process in self._burning:
            process.start()

    def end(self) -> None:
        """End them all."""
        for process in self._burning:
            process.kill()
            process.join()


@contextmanager
def growing_load() -> Iterator[Load]:
    """A load that ends with the block."""
    load = Load()
    try:
        yield load
    finally:
        load.end()


def measure(runs: Path, order: str) -> EffectResult:
    """The sweep in one of the two orders, judged as any sweep is."""
    command = SweepCommand(
        workload={"name": "selftest"},
        measure=MeasureConfig(
            rounds=ROUNDS,
            iterations=20,
            warmup_max=20,
            evidence_iterations=2,
            counting_iterations=2,
            repeats=0,
        ),
        sweep=SweepConfig(name=order, designs=[DesignConfig("one_at_a_time", levels={"delay": [DELAY]})]),
        runs=str(runs),
    )
    manifest = plan.make_plan(command, environment.device_facts())
    folder = SweepFolder(runs / manifest.sweep.name)
    launch.prepare(folder, manifest, "")
    run = PackRun(folder, manifest, manifest.packs[0])
    for arm in manifest.arms:
        for kind in (Kind.EVIDENCE, Kind.COUNTING):
            run.support(arm, kind)
    arm, base = manifest.effects[0].pairs[0]
    turns = in_rounds(manifest.packs[0].orders) if order == "rounds" else one_after_the_other((arm, base))
    with growing_load() as load:
        for done, turn in enumerate(turns):
            load.reach(done / (len(turns) - 1))
            run._trial(manifest.arm(turn.arm), Kind.TIMING, turn.number, 0)
    (result,) = compare.compare(folder, manifest, collect.collect(folder, manifest)).effects
    return result


def main() -> None:
    """Print both answers beside the truth."""
    print(
        f"the arm does {DELAY} % more work than its base; {ROUNDS} trials of each while the machine's load"
        " grows"
    )
    with tempfile.TemporaryDirectory() as runs:
        for order in ("rounds", "sequence"):
            started = time.monotonic()
            result = measure(Path(runs), order)
            assert result.ratio is not None and result.low is not None and result.high is not None
            verdict = result.verdict.value if result.verdict else ""
            print(
                f"{order:<9} {result.ratio - 1:+7.1%}  [{result.low - 1:+.1%}, {result.high - 1:+.1%}] "
                f" {verdict:<14} truth {'inside' if result.low <= TRUTH <= result.high else 'outside'},"
                f" {time.monotonic() - started:.0f} s"
            )


if __name__ == "__main__":
    main()
