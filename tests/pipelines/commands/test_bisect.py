"""Versions of a workload: a comparison of two, and perfsweep bisect on lines of planted commits."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from git_repository import Planned, git, imported, state
from typed import ended
from versioned import TRAIN, work

from perfsweep.pipelines.commands import bisect as module
from perfsweep.pipelines.commands.bisect import Walk
from perfsweep.pipelines.commands.judge import TwoVersions
from perfsweep.pipelines.exits import DONE, MISTAKE, SOME_FAILED, UNDECIDED
from perfsweep.pipelines.plan.provided import CannotRun
from perfsweep.pipelines.report.version_answer import Answer, BisectAnswer, Find, Side
from perfsweep.pipelines.versions.repository import Repository
from perfsweep.workloads.errors import ConfigError

COMMITS = 16


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with commits c0 to c16 of other code each, and two of prose in between."""
    line = [Planned("c0", {"train.py": TRAIN, "work.py": work()})]
    for number in range(1, COMMITS + 1):
        line.append(Planned(f"c{number}", {"work.py": work(comment=f"# {number}")}, (line[-1].name,)))
        if number in (3, 9):
            line.append(Planned(f"prose{number}", {"README.md": str(number)}, (line[-1].name,)))
    return imported(tmp_path_factory.mktemp("git") / "repo", line)


@dataclass
class Judged:
    """Stands in for measuring: an answer for each commit by its subject, and what was asked."""

    answers: Mapping[str, dict[str, Any]]
    names: Mapping[str, str]
    asked: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)

    def compare(
        self, versions: TwoVersions, base: Side, head: Side, said: object, more: Sequence[str], purpose: str
    ) -> Answer:
        name = self.names[str(head.commit)]
        self.asked.append((name, tuple(more)))
        about = self.answers.get(name, EQUAL)
        if "refused" in about:
            raise CannotRun(f"commit={head.name}: {about['refused']}")
        if by := about.get("by"):
            about = by(self.commits.count(name))
        return Answer(base, head, status=0, margin=versions.margin, **about)

    @property
    def commits(self) -> list[str]:
        return [name for name, _ in self.asked]


EQUAL = {"verdict": "no difference", "results": "identical"}
SLOWER = {**EQUAL, "verdict": "slower", "ratio": 1.05, "low": 1.04, "high": 1.06, "rounds": 20}
CHANGED = {"verdict": "different results", "results": "different", "deviation": "loss: 0.001, allowed 1e-06"}
LEFT = {**EQUAL, "verdict": "undecided", "reason": "about 90 rounds would decide, if the estimate stayed"}
FAILS = {"verdict": "failed", "results": "unchecked", "reason": "NameError: no", "failed": "head"}


def since(first: int, answer: dict[str, Any], **others: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """One answer for all commits from one on; others by name."""
    return {**{f"c{number}": answer for number in range(first, COMMITS + 1)}, **others}


@dataclass(frozen=True)
class Ended:
    """How a bisection ended, and which commits it looked at."""

    answer: BisectAnswer
    looked: list[str]
    asked: list[tuple[str, tuple[str, ...]]]


Bisect = Callable[..., Ended]


@pytest.fixture
def bisect(made: Path, monkeypatch: pytest.MonkeyPatch) -> Bisect:
    """Bisect without a configuration, and with answers that stand in for measurements."""
    names = {one.hash: one.subject for one in Repository(made).first_parents("c0", "main")}

    def bisect(
        answers: Mapping[str, dict[str, Any]], good: str = "c0", find: Find = Find.SLOWER, bad: str = "main"
    ) -> Ended:
        judged = Judged(answers, names)
        monkeypatch.setattr(TwoVersions, "compare", lambda self, *asked: judged.compare(self, *asked))
        versions = TwoVersions((), Repository(made), "train", 0.04, 60.0)
        return Ended(Walk(versions, good, bad, find).answer(), judged.commits, judged.asked)

    return bisect


def test_commits_with_the_code_of_the_one_before_are_not_looked_at(bisect: Bisect) -> None:
    ended = bisect(since(4, SLOWER))
    assert not any(name.startswith("prose") for name in ended.looked)
    assert list(ended.answer.log)[-1] == "2 of 18 commits have the code of the one before"
    nothing = bisect({}, "c3", bad="prose3").answer
    assert nothing.status == SOME_FAILED and nothing.line.startswith("nothing to find: c3 (")


def test_commits_that_do_not_run_are_passed_over_and_widen_the_answer_only_beside_it(bisect: Bisect) -> None:
    refused = {"refused": "ImportError: no module named gone"}
    far = bisect(since(12, SLOWER, c8=refused)).answer
    assert far.status == DONE and '"c12"' in far.line and "skipped: commit=" in "".join(far.log)
    near = bisect(since(8, SLOWER, c7=refused, c8=FAILS)).answer
    assert near.status == UNDECIDED and near.line.startswith("the first slower commit is one of 3: ")
    log = "\n".join(near.log)
    assert log.count("not told apart") == 2 and "NameError: no" in log and "no module named gone" in log


def test_an_undecided_step_is_looked_at_again_and_then_passed_over(bisect: Bisect) -> None:
    grows = {"by": lambda looks: LEFT if looks < 3 else SLOWER}
    ended = bisect(since(9, SLOWER, c9=grows))
    assert ended.answer.status == DONE and ended.looked.count("c9") == 3
    ended = bisect(since(9, SLOWER, c8=LEFT))
    assert ended.answer.status == UNDECIDED and ended.looked.count("c8") == 3
    assert ended.answer.line.startswith("the first slower commit is one of 2: ")
    assert "about 90 rounds would decide" in list(ended.answer.log)[-1]


def test_each_further_look_has_more_budget_and_a_smaller_half_width(bisect: Bisect) -> None:
    ended = bisect({"c16": LEFT})
    assert ended.answer.status == UNDECIDED and ended.answer.line.startswith("undecided whether main (")
    assert [more for _, more in ended.asked] == [
        ("measure.precision=0.02", "measure.budget_s=60"),
        ("measure.precision=0.01", "measure.budget_s=120"),
        ("measure.precision=0.005", "measure.budget_s=240"),
    ]


def test_what_changes_results_is_found_without_times(
    bisect: Bisect, made: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = bisect(since(5, CHANGED), find=Find.DIFFERENT)
    short = git(made, "rev-parse", "c5")[:10]
    assert ended.answer.status == DONE and len(ended.looked) == 5
    assert ended.answer.line.startswith(
        f'{short} is the first commit that changes results: "c5", loss: 0.001'
    )
    assert all("measure.look=true" in more for _, more in ended.asked)
    progress = capsys.readouterr().err
    assert "18 commits after c0" in progress and "16 of them with other code" in progress
    assert "step 2: 16 commits left, 4 steps to go" in progress and "1 step to go" in progress


def test_a_commit_that_is_faster_is_no_slower_one(bisect: Bisect) -> None:
    answers = since(6, {**SLOWER, "verdict": "faster", "ratio": 0.9})
    assert bisect(answers).answer.line.startswith("nothing to find: faster")
    assert bisect(answers, find=Find.FASTER).answer.suspects[0].subject == "c6"


@pytest.mark.parametrize(("last", "named"), [(FAILS, "main"), ({**LEFT, "failed": "base"}, "c0")])
def test_an_end_that_does_not_run_is_a_mistake(bisect: Bisect, last: dict[str, Any], named: str) -> None:
    with pytest.raises(
        ConfigError, match=rf"^{named} \(\w+\) cannot be measured .*; name a commit that runs"
    ):
        bisect({"c16": last})


def test_the_object_has_a_schema_the_commit_and_the_steps(bisect: Bisect, made: Path) -> None:
    found = json.loads(json.dumps(bisect(since(11, SLOWER, c8=FAILS)).answer.as_json()))
    assert (found["schema"], found["verdict"], found["exit"]) == ("perfsweep.bisect/1", "found", DONE)
    assert found["first"]["commit"] == git(made, "rev-parse", "c11") == found["suspects"][0]["commit"]
    assert (found["commits"], found["candidates"]) == (18, 16)
    marks = {step["subject"]: step["mark"] for step in found["steps"]}
    assert marks["c16"] == "with" and marks["c8"] == "skipped"
    assert all(step["judge"]["schema"] == "perfsweep.judge/2" for step in found["steps"])


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("c0",), "bisect takes two commits, GOOD and BAD"),
        (("c0", "worktree"), "bisect walks from commit to commit"),
        (("main", "c0"), "c0 does not descend from main; begin at"),
    ],
)
def test_what_cannot_be_bisected_is_one_sentence(
    made: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    sentence: str,
) -> None:
    monkeypatch.chdir(made)
    status = ended("bisect", *words, "--", "workload=script", "workload.path=train.py")
    said = capsys.readouterr()
    assert (status, said.out) == (MISTAKE, "") and sentence in said.err.splitlines()[-1]


@pytest.mark.slow
def test_a_planted_change_of_results_is_found_and_nothing_of_the_users_is_touched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    line = [
        Planned("good", {"train.py": TRAIN, "work.py": work()}),
        Planned("planted", {"work.py": work(scale=1.001)}, ("good",)),
    ]
    root = imported(tmp_path / "repo", line)
    monkeypatch.chdir(root)
    before = state(root)
    words = ["workload=script", "workload.path=train.py", f"runs={tmp_path / 'runs'}", "measure.rounds=1"]
    words += ["measure.iterations=4", "measure.warmup_max=5", "measure.evidence_iterations=4"]
    words += ["measure.servers=1", "measure.timed_parity=false", "cluster.executor=inprocess"]
    assert ended("bisect", "good", "main", "--find", "different", "--json", "--", *words) == DONE
    found = json.loads(capsys.readouterr().out)
    assert found["first"]["subject"] == "planted" and found["steps"][0]["judge"]["deviation"], found
    assert state(root) == before


def test_the_answer_is_lines_or_json_with_the_time_it_took(
    made: Path, bisect: Bisect, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = bisect(since(7, SLOWER)).answer
    versions = TwoVersions((), Repository(made), "train", 0.04, 60.0)
    monkeypatch.setattr(TwoVersions, "of", lambda name, words: versions)
    assert module.bisect(("c0", "main", "workload=train"), "slower", False) == answer.status
    took = re.compile(r"\d+ s(?=\)$)", re.MULTILINE)  # of either run, on a machine that others use
    said = [answer.line, *answer.log]
    assert took.sub("", capsys.readouterr().out).splitlines() == [took.sub("", line) for line in said]
    assert took.search(answer.line)
    module.bisect(("c0", "main", "workload=train"), "slower", True)
    found = json.loads(capsys.readouterr().out)
    assert found["seconds"] >= 0 and {**found, "seconds": 0} == {**answer.as_json(), "seconds": 0}


@pytest.mark.parametrize(
    ("command", "words", "says"),
    [
        ("judge", ["workload=digits", "axes.amp=[on]"], "judge compares two versions and nothing else"),
        ("bisect", [], "perfsweep bisect GOOD BAD -- workload=script:train.yaml"),
    ],
)
def test_what_cannot_be_compared_is_refused(command: str, words: list[str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        TwoVersions.of(command, words)
