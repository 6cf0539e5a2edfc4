"""The toggle `allocator`, which any workload has in sweeps that name it."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfsweep.pipelines.config.types import DesignConfig
from perfsweep.pipelines.execution import launch, pack
from perfsweep.pipelines.plan import plan
from perfsweep.pipelines.store.progress_read import read_progress
from perfsweep.pipelines.store.records import SweepFolder
from perfsweep.workloads import preloads
from perfsweep.workloads.api import Device
from perfsweep.workloads.preloads import ALLOCATOR, LIBRARIES, STEADY


@pytest.mark.parametrize("name", LIBRARIES)
def test_a_library_that_the_loader_would_not_find_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preloads, "_FOLDERS", (str(tmp_path),))
    level = ALLOCATOR.level(name)
    assert level.unsupported(Device()) == f"needs {LIBRARIES[name]}, which is not installed"
    (tmp_path / "x86_64-linux-gnu").mkdir()
    (tmp_path / "x86_64-linux-gnu" / LIBRARIES[name]).touch()
    assert level.unsupported(Device()) is None


def test_every_level_but_the_baseline_sets_variables() -> None:
    baseline, *others = ALLOCATOR.levels
    assert not baseline.env
    assert all(level.env for level in others)
    assert ALLOCATOR.level("steady").env == STEADY


@pytest.mark.slow
def test_arms_run_under_the_allocator_of_their_level(command, tmp_path: Path) -> None:
    sweep = command(
        DesignConfig("one_at_a_time"), axes={"allocator": ["steady"]}, workload="toys.addresses:Addresses"
    )
    manifest = plan.make_plan(sweep, Device())
    folder = SweepFolder(tmp_path / "runs" / manifest.sweep.name)
    launch.prepare(folder, manifest, "")
    assert pack.main([str(folder.path), manifest.packs[0].id]) == 0
    labels = {arm.id: arm.label for arm in manifest.arms}
    seen = {
        (labels[arm], set(STEADY) <= set(trial.record.environment["settings"]))
        for attempts in read_progress(folder, manifest).timing.values()
        for arm, trial in attempts[max(attempts)].items()
    }
    assert seen == {("baseline", False), ("allocator=steady", True)}
