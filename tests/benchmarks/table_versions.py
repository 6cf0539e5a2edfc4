"""How often answers about versions are right: the table of docs/versions.md, as Markdown.

    PYTHONPATH=tests/support python tests/benchmarks/table_versions.py            # replayed, some minutes
    PYTHONPATH=tests/support python tests/benchmarks/table_versions.py --real 3 --folder FOLDER
    PYTHONPATH=tests/support python tests/benchmarks/table_versions.py --record FOLDER

Replays draw recorded trials of two equal versions (`versions_trials.csv`, measured by ``--record`` on two
shared cores) and go through the code that stops and judges; seeds are fixed, so that the table is always the
same. ``--real`` runs ``perfsweep bisect`` and ``perfsweep judge`` on fresh repositories in which one of
sixteen commits is the culprit; what is finished in the folder is read again, not measured again.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from git_repository import Planned, imported
from replayed import Recorded, Replay, read, write

from pipelines.commands.bisect import Walk
from pipelines.commands.sweep import Display
from pipelines.commands.two_versions import DEFAULTS, PRECISE, TwoVersions
from pipelines.report.bisect_answer import BisectAnswer, Find
from pipelines.report.version_answer import Answer, Side, judged
from pipelines.store.options import MeasureConfig
from pipelines.versions.repository import Repository

RECORDED = Path(__file__).with_name("versions_trials.csv")
COMMITS = 16
SLOWER = 1.05
"""Planted change of the time: 5 % more, or less where a faster commit is planted."""
CHANGED = 1.001
"""Planted change of results."""
REPEATS = 1000

TRAIN = """
import torch
import work
torch.manual_seed(0)
model = torch.nn.Linear(32, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = torch.randn(64, 32)
for step in range(1_000_000):
    work.burn(data)
    loss = (model(data).squeeze() - data.sum(1)).pow(2).mean() * work.SCALE
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""

WORKLOAD = ("workload=script", "workload.path=train.py", "measure.iterations=80", "measure.warmup_max=40")


def work(repeats: int = REPEATS, scale: float = 1.0, edit: int = 0) -> str:
    """A module that multiplies so often in each step, and scales the loss; an edit changes nothing else."""
    return (
        f'"""Edit {edit}."""\n\nSCALE = {scale}\n\ndef burn(x):\n'
        f"    for _ in range({repeats}):\n        x @ x.T\n"
    )


def line(folder: Path, culprit: int, **planted: Any) -> Path:
    """A repository of a good commit and sixteen more, from one of which on `work` is another."""
    first = {"train.py": TRAIN, "work.py": work(), ".gitignore": "runs/\n"}
    commits = [Planned("good", first)]
    for number in range(1, COMMITS + 1):
        own = planted if number >= culprit else {}
        commits.append(Planned(f"c{number}", {"work.py": work(edit=number, **own)}, (commits[-1].name,)))
    return imported(folder, commits)


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
    culprit = int(np.random.default_rng(seed).integers(1, COMMITS + 1))
    root = line(folder / f"line{seed}", culprit)
    commits = Repository(root).first_parents("good", "main")
    versions = ReplayedVersions(
        (),
        Repository(root),
        "train",
        margin,
        300.0,
        recorded,
        frozenset(one.hash for one in commits if int(one.subject[1:]) >= culprit),
        math.log(SLOWER),
        seed,
    )
    started = time.monotonic()
    answer = Walk(versions, "good", "main", Find.SLOWER).answer()
    took = sum(step.answer.seconds for step in answer.steps) or time.monotonic() - started
    return replace(answer, seconds=took)


def is_right(answer: BisectAnswer | dict[str, Any], culprit: int) -> bool:
    """Whether a bisection found the culprit and nothing else."""
    suspects = (
        answer["suspects"]
        if isinstance(answer, dict)
        else [{"subject": one.subject} for one in answer.suspects]
    )
    return [one["subject"] for one in suspects] == [f"c{culprit}"]


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
    culprits = [int(np.random.default_rng(seed).integers(1, COMMITS + 1)) for seed in range(10)]
    right = sum(map(is_right, answers, culprits))
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


def perfsweep(root: Path, *words: str) -> tuple[dict[str, Any], float]:
    """Run a command in a repository; its JSON object, and how long it took."""
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "pipelines.cli", *words], cwd=root, capture_output=True, text=True, check=False
    )
    if not done.stdout:
        raise SystemExit(f"{words}: {done.stderr[-2000:]}")
    return json.loads(done.stdout), time.monotonic() - started


def real_rows(count: int, folder: Path, budget_s: float) -> Iterator[Sequence[str]]:
    """The table, measured."""
    for find, planted in (
        ("slower", {"repeats": round(REPEATS * SLOWER)}),
        ("different", {"scale": CHANGED}),
    ):
        found, took, steps = 0, [], Counter[int]()
        for seed in range(count):
            culprit = int(np.random.default_rng(seed).integers(1, COMMITS + 1))
            root = folder / f"{find}{seed}"
            if not root.exists():
                line(root, culprit, **planted)
            options = (*WORKLOAD, f"measure.budget_s={budget_s:g}")
            answer, seconds = perfsweep(
                root, "bisect", "good", "main", "--find", find, "--json", "--", *options
            )
            found += is_right(answer, culprit)
            steps[len(answer["steps"])] += 1
            took.append(seconds)
            print(
                f"{find} {seed}: c{culprit}, {answer['verdict']} {answer['suspects']}, {seconds:.0f} s",
                file=sys.stderr,
            )
        yield (
            f"one of 16 commits {find}",
            f"{found} of {count} right; steps: {said(steps)}",
            seconds_text(took),
        )
    yield from _real_judges(count, folder)


def _real_judges(count: int, folder: Path) -> Iterator[Sequence[str]]:
    """Edits without effect and faster ones, and a commit against itself."""
    rows = {
        "a commit against itself, margin 5 %": ({}, ("measure.margin=0.05",)),
        "edits without effect, 120 s each": ({}, ("measure.budget_s=120",)),
        "edits 5 % faster, 120 s each": ({"repeats": round(REPEATS / SLOWER)}, ("measure.budget_s=120",)),
    }
    for place, (name, (planted, options)) in enumerate(rows.items()):
        words, took = Counter[str](), []
        for number in range(count):
            root = folder / f"judge{place}-{number}"
            if not root.exists():
                line(root, 1, **planted)
            answer, seconds = perfsweep(root, "judge", "good", "c1", "--json", "--", *WORKLOAD, *options)
            words[f"{answer['verdict']} ({answer['results']})"] += 1
            took.append(seconds)
            print(f"{name} {number}: {answer['verdict']} {answer['ratio']}, {seconds:.0f} s", file=sys.stderr)
        yield name, said(words), seconds_text(took)


def record(folder: Path, rounds: int) -> None:
    """Measure two equal versions for so many rounds, and keep their trials for replays."""
    root = folder / "equal"
    if not root.exists():
        line(root, COMMITS + 1)
    # Long servers, so that replays can tell what shorter ones would have shown.
    servers = ("measure.rounds=12", "measure.servers=2")
    options = ("measure.precision=0.0001", f"measure.rounds_max={rounds}", "measure.budget_s=null", *servers)
    answer, _ = perfsweep(root, "judge", "good", "c1", "--json", "--", *WORKLOAD, *options)
    write(RECORDED, [root / answer["sweep"]])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--record", type=Path, help="measure two equal versions there, and keep their trials")
    parser.add_argument("--rounds", type=int, default=200, help="rounds to record")
    parser.add_argument("--real", type=int, default=0, help="runs of each kind instead of replays")
    parser.add_argument("--budget", type=float, default=120.0, help="seconds of trials of a real step")
    parser.add_argument("--folder", type=Path, help="where repositories and sweeps of real runs stay")
    arguments = parser.parse_args()
    if arguments.record:
        record(arguments.record, arguments.rounds)
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.folder or Path(scratch)
        recorded = read(RECORDED)
        if not arguments.real:
            trials = recorded.trials
            wall, cpu = recorded.spread("ns_per_unit"), recorded.spread("cpu_ns_per_unit")
            print(
                f"{len(trials)} trials of {len(recorded.servers)} servers; a pair scatters by {wall:.1%} in"
                f" wall time and {cpu:.1%} in CPU time; others had the cores of {recorded.crowded:.0%} of"
                f" trials; a round takes {recorded.seconds:.1f} s\n"
            )
        print("| | found | seconds of trials |\n|---|---|---|")
        rows = (
            real_rows(arguments.real, folder, arguments.budget)
            if arguments.real
            else replayed_rows(recorded, folder)
        )
        for row in rows:
            print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
