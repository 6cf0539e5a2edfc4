"""The pipelines know a toggle by what it declares: a user's toggle may have any name."""

from __future__ import annotations

import ast
import gc
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest
from toys.renamed import OtherNames, SameNames

from perfsweep import pipelines
from perfsweep.pipelines.store.options import MeasureConfig
from perfsweep.pipelines.store.records import Arm, Kind, TrialSpec
from perfsweep.pipelines.trial import layout, scene, step_logging
from perfsweep.workloads import toggles as shared
from perfsweep.workloads.api import Level, Levels, Toggle, Workload

SHARED = {
    name
    for name, made in vars(shared).items()
    if getattr(made, "__annotations__", {}).get("return") == "Toggle"
}

OTHERWISE = {
    ("analysis", "compile"),  # heading of the column that says what compiling costs
    ("profiling", "tf32"),  # a type of product in perfsweep.workloads.peaks, as below
    ("gpu_check", "tf32"),
    *((package, "data") for package in ("store", "trial", "analysis", "check")),  # key of the data's digest
    *((package, "data") for package in ("config", "publish", "report")),  # words of W&B and matplotlib
}
"""Literals that are no toggle's name, by package."""

WORKLOADS = "templates"
"""Folder of a workload that `perfsweep new` copies: workloads may know their toggles."""


def literals(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def test_no_literal_of_the_pipelines_is_a_shared_toggles_name() -> None:
    root = Path(inspect.getfile(pipelines)).parent
    known = {
        (file.relative_to(root).parts[0], text)
        for file in root.rglob("*.py")
        if WORKLOADS not in file.parts
        for text in literals(file)
        if text.removeprefix("toggles.").partition("=")[0] in SHARED
    }
    assert {"gc", "slab_size", "wandb_logging", "compile"} <= SHARED
    assert known <= OTHERWISE


@pytest.fixture
def frozen() -> Iterator[None]:
    """The collector as a fork server leaves it to its trials."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.parametrize(("cls", "left_alone"), [(SameNames, False), (OtherNames, True)])
def test_the_collector_is_left_to_a_toggle_that_owns_it(
    cls: type[Workload], left_alone: bool, frozen: None
) -> None:
    layout.prepare_collector(cls, {})
    assert (gc.get_freeze_count() == 0) == left_alone


def levels_of(cls: type[Workload], chosen: Levels) -> dict[str, Level]:
    toggles: dict[str, Toggle] = {toggle.name: toggle for toggle in cls.toggles}
    return {name: toggles[name].level(value) for name, value in chosen.items()}


def timing(tmp_path: Path, levels: Levels) -> TrialSpec:
    measure = MeasureConfig(
        rounds=1,
        iterations=1,
        jobs=1,
        warmup_max=5,
        evidence_iterations=1,
        counting_iterations=1,
        threads=1,
        timeout_s=1,
        seed=0,
    )
    arm = Arm(id="a" * 16, label="arm", levels=dict(levels))
    return TrialSpec(
        sweep="s",
        workload="w",
        config={},
        arm=arm,
        kind=Kind.TIMING,
        pack="p000",
        round=0,
        attempt=0,
        measure=measure,
        code="",
        cache_dir=str(tmp_path),
    )


@pytest.mark.parametrize(
    ("cls", "chosen", "commits"),
    [
        (SameNames, {"wandb_logging": "each"}, []),
        (OtherNames, {"reporting": "late"}, []),
        (OtherNames, {"reporting": "at_once"}, [2]),
    ],
)
def test_rows_go_to_w_and_b_where_a_level_declares_it(
    cls: type[Workload], chosen: Levels, commits: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[int] = []
    monkeypatch.setattr(scene, "LiveLog", lambda commit_every, folder: opened.append(commit_every))
    log = scene.log_of(levels_of(cls, chosen), timing(tmp_path, chosen), tmp_path, rank=0)
    assert opened == commits
    assert isinstance(log, step_logging.BufferedLog) == (not commits)
