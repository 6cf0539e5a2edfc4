"""Versions of a workload: a comparison of two, and perfsweep bisect on lines of planted commits."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from git_repository import Planned, git, imported, state
from versioned import TRAIN, work

from perfsweep.pipelines.cli import main
from perfsweep.pipelines.commands import bisect as module
from perfsweep.pipelines.commands import two_versions
from perfsweep.pipelines.commands.bisect import Walk
from perfsweep.pipelines.commands.two_versions import Steps, TwoVersions
from perfsweep.pipelines.exits import DONE, MISTAKE, SOME_FAILED, UNDECIDED
from perfsweep.pipelines.plan.provided import CannotRun, SameCode
from perfsweep.pipelines.report.bisect_answer import BisectAnswer, Find
from perfsweep.pipelines.report.version_answer import Answer, Side
from perfsweep.pipelines.store.records import PLACEBO
from perfsweep.pipelines.versions.repository import Repository
from perfsweep.workloads.errors import ConfigError, PerfsweepError

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


@pytest.mark.parametrize("first", [1, 7, 16])
def test_the_first_slower_commit_is_found_in_five_steps(
    bisect: Bisect, made: Path, first: int, capsys: pytest.CaptureFixture[str]
) -> None:
    before = state(made)
    ended = bisect(since(first, SLOWER))
    hash_ = git(made, "rev-parse", f"c{first}")
    assert ended.answer.status == DONE
    assert ended.answer.line.startswith(
        f'{hash_[:10]} is the first slower commit: "c{first}", 1.050x slower ['
    )
    assert len(ended.looked) == 5 and ended.looked[0] == "c16"
    assert [line.split(" ")[0] for line in ended.answer.log] == ["1.", "2.", "3.", "4.", "5.", "2"]
    progress = capsys.readouterr().err
    assert "18 commits after c0" in progress and "16 of them with other code" in progress
    assert "step 2: 16 commits left, 4 steps to go" in progress and "1 step to go" in progress
    assert state(made) == before


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


def test_times_of_other_results_do_not_count_and_the_answer_says_what_does(bisect: Bisect) -> None:
    ended = bisect(since(5, CHANGED))
    assert (ended.answer.status, ended.looked) == (SOME_FAILED, ["c16"])
    assert ended.answer.line.startswith("nothing to find: different results")
    assert "--find different" in ended.answer.line


def test_what_changes_results_is_found_without_times(bisect: Bisect, made: Path) -> None:
    ended = bisect(since(5, CHANGED), find=Find.DIFFERENT)
    short = git(made, "rev-parse", "c5")[:10]
    assert ended.answer.status == DONE and len(ended.looked) == 5
    assert ended.answer.line.startswith(
        f'{short} is the first commit that changes results: "c5", loss: 0.001'
    )
    assert all("measure.look=true" in more for _, more in ended.asked)


def test_a_commit_that_is_faster_is_no_slower_one(bisect: Bisect) -> None:
    answers = since(6, {**SLOWER, "verdict": "faster", "ratio": 0.9})
    assert bisect(answers).answer.line.startswith("nothing to find: faster")
    assert bisect(answers, find=Find.FASTER).answer.suspects[0].subject == "c6"


@pytest.mark.parametrize(
    ("last", "named"), [(FAILS, "main"), ({"refused": "no"}, "main"), ({**LEFT, "failed": "base"}, "c0")]
)
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
        (("c0", "main", "--find", "odd"), "'odd' is not one of 'slower', 'faster', 'different'"),
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
    with pytest.raises(SystemExit) as end:
        main(["bisect", *words, "--", "workload=script", "workload.path=train.py"])
    said = capsys.readouterr()
    assert (end.value.code, said.out) == (MISTAKE, "") and sentence in said.err.splitlines()[-1]


@pytest.mark.slow
def test_a_planted_change_of_results_is_found_and_a_repeated_command_measures_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    line = [
        Planned("good", {"train.py": TRAIN, "work.py": work()}),
        Planned("planted", {"work.py": work(scale=1.001)}, ("good",)),
    ]
    root, runs = imported(tmp_path / "repo", line), tmp_path / "runs"
    monkeypatch.chdir(root)
    before, kept = state(root), []
    words = ["workload=script", "workload.path=train.py", f"runs={runs}", "measure.timed_parity=false"]
    quick = ["measure.iterations=4", "measure.warmup_max=5", "measure.evidence_iterations=4"]
    for _ in range(2):
        with pytest.raises(SystemExit) as end:
            main(["bisect", "good", "main", "--find", "different", "--json", "--", *words, *quick])
        assert end.value.code == DONE
        found = json.loads(capsys.readouterr().out)
        assert found["first"]["subject"] == "planted" and found["steps"][0]["judge"]["deviation"], found
        kept.append({path: path.stat().st_mtime_ns for path in runs.rglob("record.json")})
    assert kept[0] == kept[1] and state(root) == before


def test_a_bisection_has_folders_of_its_own() -> None:
    with pytest.raises(ConfigError, match=r"a folder of its own; leave name= out, or set runs="):
        module.bisect(("c0", "main", "workload=toys", "name=mine"), "slower", False)


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


class Heard:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.said = list[Any]()

    def notice(self, text: str) -> None:
        self.said.append(text)

    def counts(self, text: str) -> None:
        self.said.append(f"counts: {text}")

    def trials(self, planned: Any, unfinished: Any) -> str:
        return f"{planned} {unfinished}"


def test_steps_that_are_much_the_same_say_each_thing_once() -> None:
    heard = Heard()
    steps = Steps(heard)  # type: ignore[arg-type]
    steps.begins("a plan", {})  # type: ignore[arg-type]
    for text in ("one", "other", "one"):
        steps.notice(text)
        steps.counts(text)
    assert heard.said == ["one", "counts: one", "other", "counts: other", "counts: one"]
    assert steps.trials("a plan", 3) == "a plan 3"  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("command", "words", "says"),
    [
        ("judge", ["workload=digits", "axes.amp=[on]"], "judge compares two versions and nothing else"),
        ("bisect", ["workload=digits", "sweep=demo"], "bisect compares two versions and nothing else"),
        ("judge", ["measure.rounds=3"], "perfsweep judge -- workload=script:train.yaml"),
        ("bisect", [], "perfsweep bisect GOOD BAD -- workload=script:train.yaml"),
    ],
)
def test_what_cannot_be_compared_is_refused(command: str, words: list[str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        TwoVersions.of(command, words)


@pytest.mark.parametrize(
    ("words", "added"),
    [
        ((), ("measure.region_s=0.5", "measure.precision=0.0125")),
        (("measure.margin=0.1",), ("measure.region_s=0.5", "measure.precision=0.05")),
        (("measure.iterations=9",), ("measure.precision=0.0125",)),
    ],
)
def test_regions_last_half_a_second_and_rounds_end_at_half_the_margin_unless_said_otherwise(
    words: tuple, added: tuple
) -> None:
    typed = ("workload=digits", *words)
    found = TwoVersions.of("judge", typed, commits=False)
    assert found.overrides == (*two_versions.DEFAULTS, *added, *typed)
    assert (found.repository, found.title) == (None, "digits")
    assert found.budget_s == 300
    assert found.margin == (0.1 if "measure.margin=0.1" in words else 0.025)


REPOSITORY: Any = SimpleNamespace(commit=lambda name: f"{name}-{'0' * 40}")
OWN = TwoVersions((), REPOSITORY, "digits", 0.025, None)


def test_a_side_is_a_commit_or_the_checkout() -> None:
    assert OWN.side("v1") == Side("v1", f"v1-{'0' * 40}")
    assert OWN.side("worktree") == Side("worktree", None)


@pytest.mark.parametrize(
    ("base", "head", "name"),
    [
        (Side("v1", "a" * 40), Side("worktree", None), "digits-judge-aaaaaaaaaa-worktree"),
        (Side("/envs/old one", None), Side("b", "b" * 12), "digits-judge--envs-old-one-bbbbbbbbbb"),
    ],
)
def test_the_same_two_versions_have_one_folder_for_each_purpose(base: Side, head: Side, name: str) -> None:
    assert OWN._folder_name("judge", base, head) == name


class Api:
    """Stands where sweeps are planned and measured."""

    def __init__(self, broken: dict[str, str], *, same: bool = False) -> None:
        self.broken, self.same, self.commands = broken, same, list[Any]()

    def plan(self, command: Any, text: str) -> Any:
        self.commands.append(command)
        if self.same:
            raise SameCode("the same")
        pack = SimpleNamespace(id="p000", orders=(1, 2))
        arm = SimpleNamespace(effect=SimpleNamespace(design="arms", pairs=[("head", "base")]))
        placebo = SimpleNamespace(effect=SimpleNamespace(design=PLACEBO))
        progress = SimpleNamespace(seconds=lambda pack, rounds: 10.0 * rounds)
        sweep = SimpleNamespace(
            folder=SimpleNamespace(path="runs/x"),
            manifest=SimpleNamespace(packs=[pack]),
            comparison=SimpleNamespace(effects=[placebo, arm]),
            progress=progress,
            report=lambda: None,
        )
        return SimpleNamespace(notices=["beware"], sweep=sweep)

    def measure(self, planned: Any, said: Any) -> dict[str, str]:
        return self.broken


def compared(monkeypatch: pytest.MonkeyPatch, api: Api, *more: str) -> tuple[Any, Any, Heard]:
    judged = dict[str, Any]()

    def judge(result: Any, seconds: float, *, base_runs: bool) -> dict[str, Any]:
        judged.update(design=result.effect.design, seconds=seconds, base_runs=base_runs)
        return {"verdict": "faster", "reason": "it is\n so", "results": "identical", "status": 0}

    monkeypatch.setattr(two_versions, "api", api)
    monkeypatch.setattr(two_versions, "judged", judge)
    timed = SimpleNamespace(timed=lambda arm: [arm] if arm == "base" else [])
    monkeypatch.setattr(two_versions, "ArmRecords", lambda progress, packs: timed)
    heard = Heard()
    heard.notices = heard.said.extend  # type: ignore[attr-defined]
    own = TwoVersions((*two_versions.DEFAULTS, "workload=digits"), None, "digits", 0.025, 300.0)
    sides = Side("/envs/a", None), Side("/envs/b", None)
    return own.compare(*sides, heard, more), judged, heard  # type: ignore[arg-type]


def test_the_second_version_is_judged_against_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    api = Api({})
    answer, judged, heard = compared(monkeypatch, api, "measure.budget_s=7")
    assert judged == {"design": "arms", "seconds": 20.0, "base_runs": True}
    assert (answer.verdict, answer.reason, answer.sweep) == ("faster", "it is so", "runs/x")
    assert (answer.workload, answer.margin, answer.budget_s) == ("digits", 0.025, 7)
    assert (answer.base.name, answer.head.name) == ("/envs/a", "/envs/b")
    assert heard.said == ["beware"]
    (command,) = api.commands
    assert command.name == "digits-judge--envs-a--envs-b"
    assert [list(values) for values in command.axes.values()] == [["/envs/a", "/envs/b"]]


def test_versions_of_the_same_code_need_no_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    answer, judged, _ = compared(monkeypatch, Api({}, same=True))
    assert (answer.verdict, answer.results, answer.status, judged) == ("no difference", "same code", 0, {})


def test_a_pack_that_broke_off_ends_the_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PerfsweepError, match="pack p000 broke off; the end of its log: no memory"):
        compared(monkeypatch, Api({"p000": "no memory"}))
