"""Versions of the user's code as levels of a toggle that the sweep provides."""

from __future__ import annotations

from pathlib import Path

import pytest
from git_repository import begin, commit, state
from versioned import scripted

from pipelines.config.types import DesignConfig
from pipelines.plan import plan
from pipelines.plan.provided import SameCode, find_provided
from pipelines.profiling.profile import Profiling
from pipelines.store.records import Kind, Manifest, SweepFolder, TrialSpec
from pipelines.versions import keep
from workloads.api import Device
from workloads.errors import ConfigError
from workloads.snapshot import Snapshot

OWN = """
from dataclasses import dataclass
from workloads.api import Check, Evidence, Level, Toggle, Workload

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


def test_the_first_version_that_is_named_is_the_base(asked) -> None:
    found = provided(asked("slow", "base", "worktree"))
    assert found is not None
    assert [level.value for level in found.toggles[0].levels] == ["slow", "base", "worktree"]


def test_a_sweep_that_names_no_version_has_no_such_toggle(asked) -> None:
    given = asked()
    given.axes = {"amp": ["bf16"]}
    assert provided(given) is None


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


def specs(manifest: Manifest, folder: Path) -> dict[str, TrialSpec]:
    return {
        arm.label: TrialSpec.of(manifest.sweep, arm, Kind.TIMING, "p000", folder) for arm in manifest.arms
    }


@pytest.mark.slow
def test_each_version_is_an_arm_with_code_of_its_own_beside_other_toggles(
    asked, root: Path, tmp_path: Path
) -> None:
    before = state(root)
    manifest = plan.make_plan(asked("base", "slow", "prose", zero_grad=["none"]), Device())
    rows = {(effect.toggle, effect.level) for effect in manifest.effects}
    assert rows == {("commit", "slow"), ("zero_grad", "none")}
    assert [
        one.level for one in manifest.refused if "same code as commit=base: it is inert" in one.reason
    ] == ["prose"]
    own = specs(manifest, tmp_path)
    assert own["baseline"].code != own["commit=slow"].code
    assert all("commit" not in spec.arm.levels for spec in own.values()), "a workload is told of no version"
    with pytest.raises(ConfigError, match="with versions are not profiled"):
        Profiling(SweepFolder(tmp_path), manifest, manifest.arms[0])
    for version in manifest.sweep.versions:
        keep.keep(tmp_path / "code", version, ())
    copies = {
        one.levels["commit"]: Snapshot(tmp_path / "code" / f"sources-{one.sources[:16]}")
        for one in manifest.sweep.versions
    }
    assert "100000" in copies["slow"].copies[root / "work.py"].read_text()
    assert "10000" in copies["base"].copies[root / "work.py"].read_text()
    assert state(root) == before


@pytest.mark.slow
def test_a_commit_without_other_code_leaves_nothing_to_measure(asked) -> None:
    with pytest.raises(SameCode, match="commit=prose has the same code as commit=base"):
        plan.make_plan(asked("base", "prose"), Device())


@pytest.mark.slow
def test_a_version_runs_with_its_own_defaults_and_is_asked_for_no_level_that_it_lacks(
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
    given.sweep.references["fast"] = {"commit": "old", "speed": "fast"}
    with pytest.raises(ConfigError, match=r"commit=old: toggles.speed=fast is not a level of speed"):
        plan.make_plan(given, Device())
