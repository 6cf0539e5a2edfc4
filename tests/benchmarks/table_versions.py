"""How often answers about versions are right: the table of docs/results/versions.md, as Markdown.

    PYTHONPATH=tests/support python tests/benchmarks/table_versions.py            # some minutes
    PYTHONPATH=tests/support python tests/benchmarks/table_versions.py --record FOLDER/itself*/runs/*

Replays draw recorded trials of two equal versions (`versions_trials.csv`, kept by ``--record`` from sweeps
that `table_versions_real.py` measured) and go through the code that stops and judges; seeds are fixed, so
that the table is always the same.
"""

from __future__ import annotations

import argparse
import math
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from planted_versions import SLOWER, culprit, is_right, line
from replayed import Recorded, Replay, read, write

from perfsweep.pipelines.commands.bisect import Walk
from perfsweep.pipelines.commands.judge import DEFAULTS, PRECISE, TwoVersions
from perfsweep.pipelines.commands.sweep import Display
from perfsweep.pipelines.report.version_answer import Answer, BisectAnswer, Find, Side, judged
from perfsweep.pipelines.store.options import MeasureConfig
from perfsweep.pipelines.versions.repository import Repository

RECORDED = Path(__file__).with_name("versions_trials.csv")


def measure_of(margin: float, budget_s: float, precision: float | None = None) -> MeasureConfig:
    """What `judge` asks for, as far as it decides when rounds end."""
    typed = {word.partition("=")[0]: word.partition("=")[2] for word in DEFAULTS}
    return MeasureConfig(
        rounds=int(typed["measure.rounds"]),
        servers=int(typed["measure.servers"]),
        rounds_max=int(typed["measure.rounds_max"]),
        margin=margin,
        budget_s=budget_s,
        precision=precision or margin * PRECISE,
    )


@dataclass(frozen=True)
class ReplayedVersions(TwoVersions):
    """Versions of which everything from one commit on is slower, measured by drawing recorded trials."""

    recorded: Recorded | None = None
    slow: frozenset[str] = frozenset()
    change: float = 0.0
    seed: int = 0

    def compare(
        self, base: Side, head: Side, said: Display, more: Sequence[str] = (), purpose: str = "judge"
    ) -> Answer:
        """Draw as many rounds as the options ask for; every look at a commit sees the rounds of the last."""
        options = {word.partition("=")[0]: word.partition("=")[2] for word in more}
        assert self.recorded is not None and head.commit is not None
        # The seed is the commit's, so that a further look draws the same rounds first.
        rng = np.random.default_rng([self.seed, int(head.commit[:12], 16)])
        replay = Replay(self.recorded, rng, self.change if head.commit in self.slow else 0.0)
        measure = measure_of(
            self.margin, float(options["measure.budget_s"]), float(options["measure.precision"])
        )
        result, seconds = replay.judged(measure)
        return replace(
            Answer(base, head, margin=self.margin, **judged(result, seconds)),
            seconds=seconds,
            results="identical",
        )


def replayed_bisect(recorded: Recorded, seed: int, folder: Path, margin: float = 0.025) -> BisectAnswer:
    """One line with a commit 5 % slower, bisected."""
    planted = culprit(seed)
    root = line(folder / f"line{seed}", planted)
    commits = Repository(root).first_parents("good", "main")
    versions = ReplayedVersions(
        (),
        Repository(root),
        "train",
        margin,
        300.0,
        recorded,
        frozenset(one.hash for one in commits if int(one.subject[1:]) >= planted),
        math.log(SLOWER),
        seed,
    )
    started = time.monotonic()
    answer = Walk(versions, "good", "main", Find.SLOWER).answer()
    took = sum(step.answer.seconds for step in answer.steps) or time.monotonic() - started
    return replace(answer, seconds=took)


def judged_many(
    recorded: Recorded, count: int, change: float, margin: float, budget_s: float
) -> tuple[Counter[str], list[float]]:
    """Verdicts of so many replayed judges, and seconds of trials of each."""
    words, seconds = Counter[str](), []
    for seed in range(count):
        rng = np.random.default_rng([count, seed, round(1e4 * abs(change)), round(1e4 * margin)])
        result, took = Replay(recorded, rng, change).judged(measure_of(margin, budget_s))
        words[judged(result)["verdict"]] += 1
        seconds.append(took)
    return words, seconds


def replayed_rows(recorded: Recorded, folder: Path) -> Iterator[Sequence[str]]:
    """The table, replayed."""
    for margin in (0.05, 0.025):
        words, took = judged_many(recorded, 20, 0.0, margin, 300.0)
        yield f"a commit against itself, 20 runs, margin {margin:.1%}", said(words), seconds_text(took)
    for margin in (0.025, 0.01):
        for change, name in ((0.0, "without effect"), (-math.log(SLOWER), "5 % faster")):
            words, took = judged_many(recorded, 50, change, margin, 120.0)
            kept = f"{words['faster']} kept; {said(words)}"
            yield f"50 edits {name}, 120 s each, margin {margin:.1%}", kept, seconds_text(took)
    answers = [replayed_bisect(recorded, seed, folder) for seed in range(10)]
    right = sum(
        is_right([one.subject for one in answer.suspects], culprit(seed))
        for seed, answer in enumerate(answers)
    )
    steps = Counter(len(one.steps) for one in answers)
    ends = Counter(one.verdict for one in answers)
    how = f"{right} of 10 right ({said(ends)}); steps: {said(steps)}"
    yield "one of 16 commits 5 % slower, 10 seeds", how, seconds_text([one.seconds for one in answers])


def said(counted: Counter[Any]) -> str:
    """Words with their counts, the commonest first."""
    return ", ".join(f"{count} {word}" for word, count in counted.most_common())


def seconds_text(seconds: Sequence[float]) -> str:
    """Median and largest."""
    return f"{np.median(seconds):.0f} s, at most {max(seconds):.0f} s"


def main() -> None:
    """Print the table, or keep the trials that it draws from."""
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--record", type=Path, nargs="+", help="sweeps of judge of two equal versions, whose trials are kept"
    )
    arguments = parser.parse_args()
    if arguments.record:
        write(RECORDED, arguments.record)
        return
    recorded = read(RECORDED)
    wall, own = recorded.spread("wall_ns_per_unit"), recorded.spread("ns_per_unit")
    print(
        f"{len(recorded.trials)} trials of {len(recorded.servers)} servers; a pair scatters by {wall:.1%} in"
        f" wall time and {own:.1%} without what others had of the cores, {recorded.lost:.0%} of the time;"
        f" a round takes {recorded.seconds:.1f} s\n"
    )
    print("| | found | seconds of trials |\n|---|---|---|")
    with tempfile.TemporaryDirectory() as scratch:
        for row in replayed_rows(recorded, Path(scratch)):
            print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
