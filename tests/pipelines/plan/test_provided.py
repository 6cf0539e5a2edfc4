"""Versions of the user's code as levels of a toggle that the sweep provides."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from git_repository import begin, commit
from toys.spinner import Spinner
from versioned import scripted

from perfsweep.pipelines.config.types import DesignConfig
from perfsweep.pipelines.plan import designs, plan, version_look
from perfsweep.pipelines.plan.arms import Space
from perfsweep.pipelines.plan.designs import Assignment, PlannedEffect, refusal
from perfsweep.pipelines.plan.provided import CannotRun, Cast, Part, Provided, SameCode, find_provided
from perfsweep.pipelines.plan.version_look import Answer, Question
from perfsweep.pipelines.store.records import Arm, Environment
from perfsweep.pipelines.versions.repository import Repository
from perfsweep.pipelines.versions.tree import Tree
from perfsweep.workloads.api import Device, Level, Toggle
from perfsweep.workloads.errors import ConfigError

OWN = """
from dataclasses import dataclass
from perfsweep.workloads.api import Check, Evidence, Level, Toggle, Workload

@dataclass
class Config:
    size: int = {size}

class Own(Workload):
    Config = Config
    toggles = (Toggle("speed", (Level("slow"), {levels}), "go faster"),)
    checks = (Check("x"),)
    def setup(self, config, levels, context): ...
    def step(self, clock): ...
    def progress(self): return 1.0
    def evidence(self): return Evidence()
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return scripted(tmp_path_factory.mktemp("git") / "repo")


@pytest.fixture
def asked(command, root: Path):
    def asked(*versions: object, **axes: list[object]):
        given = command(DesignConfig("one_at_a_time"), workload="script")
        given.workload = {"name": "script", "path": "train.py", "folder": str(root)}
        given.axes = {"commit": list(versions), **axes}
        return given

    return asked


def provided(given):
    return find_provided(plan.load_workload(given.workload)[0], given)


@pytest.mark.parametrize(
    ("versions", "sentence"),
    [
        (("base", "nowhere"), r"axes.commit: nowhere is no commit of .*repo$"),
        (("base",), r"names one version; name the base first: 'axes.commit=\[main,base\]'"),
        (("base", 1234567), r"axes.commit=1234567: a hash that reads as a number must be quoted"),
        (("empty", "base"), r"axes.commit: empty has no train.py"),
    ],
)
def test_a_mistake_is_one_sentence(asked, versions: tuple[object, ...], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        provided(asked(*versions))


def test_a_workload_that_is_nobodys_code_has_no_versions(command) -> None:
    given = command(DesignConfig("one_at_a_time"), workload="digits")
    given.axes = {"commit": ["main", "HEAD"]}
    with pytest.raises(ConfigError, match="no Python code of your own"):
        provided(given)


@pytest.mark.parametrize(
    ("text", "file"),
    [("python train.py --fast", "train.py"), ("torchrun train.py", "train.py"), ("true", "")],
)
def test_a_command_has_the_versions_of_the_python_file_that_it_names(
    command, root: Path, text: str, file: str
) -> None:
    given = command(DesignConfig("one_at_a_time"), workload="command")
    given.workload = {"name": "command", "command": text, "folder": str(root)}
    given.axes = {"commit": ["base", "slow"]}
    if not file:
        with pytest.raises(ConfigError, match=r"or of a Python file that workload\.command names"):
            provided(given)
        return
    found = provided(given)
    assert found is not None
    trees = [found.code((level,)) for level in ("base", "slow")]
    assert all(tree and root / file in tree.files for tree in trees)


@pytest.mark.slow
def test_a_version_runs_with_its_own_defaults_and_one_that_fails_is_refused_with_its_reason(
    command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = begin(tmp_path / "repo")
    texts = {
        "old": OWN.format(size=1, levels='Level("quick")'),
        "bad": "raise ValueError('not ready')",
        "new": OWN.format(size=2, levels='Level("fast")'),
    }
    for tag, text in texts.items():
        commit(root, {"versioned_own.py": text}, tag)
    monkeypatch.syspath_prepend(str(root))
    given = command(
        DesignConfig("arms", arms={"bad": {"commit": "bad"}, "new": {"commit": "new"}}), workload="x"
    )
    given.workload = {"name": "versioned_own:Own"}
    given.sweep.references = {"old": {"commit": "old"}, "fast": {"commit": "new", "speed": "fast"}}
    manifest = plan.make_plan(given, Device())
    sizes = {one.levels["commit"]: one.config["size"] for one in manifest.sweep.versions}
    assert sizes == {"old": 1, "new": 2}
    assert {one.toggle for one in manifest.refused} == {"bad"}
    assert all("ValueError: not ready" in one.reason for one in manifest.refused)


(IDLE,) = (toggle for toggle in Spinner.toggles if toggle.name == "idle")


class Asked:
    """Stands where versions are asked in processes of their own; an answer for each, in their order."""

    def __init__(self, *answers: Answer) -> None:
        self.answers, self.questions = answers, dict[int, Question]()

    def __call__(self, question: Question, folder: Path, *_: object) -> Answer:
        self.questions[int(folder.name)] = question
        answer = self.answers[int(folder.name)]
        known = {one["key"]: json.loads(one["key"]) | {"theirs": "on"} for one in question.arms}
        return answer if answer.problem else dataclasses.replace(answer, levels=known)


@pytest.fixture
def cast(command, root: Path, monkeypatch: pytest.MonkeyPatch):
    """Versions by their names with an answer, each asked about both levels of a toggle; a text is a code."""

    def stood_for(part: str | Environment) -> Part:
        return Tree(Repository(root), f"hash of {part}", {}, part) if isinstance(part, str) else part

    def cast(
        toggle: str, **versions: tuple[str | Environment, Answer]
    ) -> tuple[Cast, list[Assignment], Asked]:
        toggles = (Toggle(toggle, tuple(map(Level, versions)), ""),)
        parts = Provided(toggles, {toggle: {name: stood_for(part) for name, (part, _) in versions.items()}})
        asked = Asked(*(answer for _, answer in versions.values()))
        monkeypatch.setattr(version_look, "ask", asked)
        monkeypatch.setattr("perfsweep.pipelines.plan.provided._measuring_code", lambda folder: None)
        made = Cast(parts, Space((*toggles, IDLE)), Spinner, command(), Device())
        arms = [{toggle: name, "idle": idle} for name in versions for idle in ("off", "on")]
        made.look(arms)
        return made, arms, asked

    return cast


def test_versions_of_one_code_make_one_arm_and_what_one_cannot_run_is_told(cast) -> None:
    cannot = Answer(problems={'{"idle": "on"}': "idle=on is not a level of idle"})
    versions = {"base": ("x", Answer()), "prose": ("x", Answer()), "other": ("y", cannot)}
    made, arms, asked = cast("commit", **versions, bad=("z", Answer(problem="it has no toy")))
    base, fast, prose, _, other, *_ = [made.arm(arms[i], "own", Spinner.Config()) for i in (0, 1, 2, 3, 4)]
    assert base.id == prose.id and len({base.id, fast.id, other.id}) == 3
    assert [arm.label for arm in (base, fast, prose)] == ["baseline", "idle=on", "commit=prose"]
    assert (prose.version, other.version) == ("x", "y")
    assert prose.levels == {"commit": "prose", "idle": "off"}
    assert prose.own == {"idle": "off", "theirs": "on"}
    for levels, said in ((arms[5], "other: idle=on is not a level of idle"), (arms[6], "bad: it has no")):
        with pytest.raises(CannotRun, match=f"^commit={said}"):
            made.arm(levels, "own", Spinner.Config())
    question = asked.questions[2]
    assert question.toggles == ["idle"], "a version is told of no other"
    assert [one["choices"] for one in question.arms] == [{}, {"idle": "on"}]


def effects(made: Cast) -> tuple[list[PlannedEffect], Callable[[Assignment], Arm]]:
    planned = designs.one_at_a_time(made._space, made._space.complete({})).effects
    return list(planned), lambda levels: made.arm(levels, "own", Spinner.Config())


def test_effects_between_one_code_are_left_out_with_the_level_that_it_is_the_same_as(cast) -> None:
    bad = Answer(problem="it has no toy")
    names, answers = ("base", "prose", "slow", "late", "bad"), (Answer(), Answer(), Answer(), Answer(), bad)
    trees = dict(zip(names, zip("xxyyz", answers, strict=True), strict=True))
    made, *_ = cast("commit", **trees)
    planned, arm = effects(made)
    kept, left_out = made.keep_runnable(planned, [refusal("d", "t", "l", "before")], arm)
    assert [(one.toggle, one.level) for one in kept] == [("commit", "slow"), ("idle", "on")]
    assert [(one.level, one.reason) for one in left_out] == [
        ("l", "before"),
        ("prose", "commit=prose has the same code as commit=base: it has no effect"),
        ("late", "commit=late has the same code as commit=slow: it has no effect"),
        ("bad", "commit=bad: it has no toy"),
    ]


@pytest.mark.parametrize(("digests", "error"), [("xx", SameCode), ("xxz", CannotRun)])
def test_where_nothing_is_left_to_compare_it_is_told_apart_why(cast, digests: str, error: type) -> None:
    answers = (Answer(), Answer(), Answer(problem="it has no toy"))
    trees = dict(zip("abc", zip(digests, answers, strict=False), strict=False))
    made, *_ = cast("commit", **trees)
    planned, arm = effects(made)
    with pytest.raises(ConfigError) as refused:
        made.keep_runnable([one for one in planned if one.toggle == "commit"], [], arm)
    assert type(refused.value) is error
    assert str(refused.value).startswith("commit=b has the same code as commit=a: it has no effect")
