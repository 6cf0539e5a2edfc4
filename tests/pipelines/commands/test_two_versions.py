"""Two versions of a workload: how a comparison of them is asked for, and what comes of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from perfsweep.pipelines.commands import two_versions as module
from perfsweep.pipelines.commands.two_versions import Steps, TwoVersions
from perfsweep.pipelines.plan.provided import SameCode
from perfsweep.pipelines.report.version_answer import Side
from perfsweep.pipelines.store.records import PLACEBO
from perfsweep.workloads.errors import ConfigError, PerfsweepError


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
    assert found.overrides == (*module.DEFAULTS, *added, *typed)
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

    monkeypatch.setattr(module, "api", api)
    monkeypatch.setattr(module, "judged", judge)
    timed = SimpleNamespace(timed=lambda arm: [arm] if arm == "base" else [])
    monkeypatch.setattr(module, "ArmRecords", lambda progress, packs: timed)
    heard = Heard()
    heard.notices = heard.said.extend  # type: ignore[attr-defined]
    own = TwoVersions((*module.DEFAULTS, "workload=digits"), None, "digits", 0.025, 300.0)
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
