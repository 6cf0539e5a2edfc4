"""The folder of a sweep belongs to one workload: another of the same name is refused before it writes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from perfsweep.pipelines.config.types import DesignConfig
from perfsweep.pipelines.execution import launch
from perfsweep.pipelines.plan import plan
from perfsweep.pipelines.store.records import Manifest, SweepFolder
from perfsweep.workloads import registry
from perfsweep.workloads.api import Device
from perfsweep.workloads.errors import ConfigError

MODULE = """
from toys.spinner import Spinner

class Rocket(Spinner):
    unit = "{unit}"
"""

Plan = Callable[..., tuple[SweepFolder, Manifest]]


def write_module(folder: Path, name: str, unit: str = "flight") -> Path:
    folder.mkdir(exist_ok=True)
    file = folder / f"{name}.py"
    file.write_text(MODULE.format(unit=unit))
    return file


@pytest.fixture
def planned(command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    """Plan a sweep of the class Rocket in a module of a folder, imported anew."""

    def make(module: str, folder: Path, **config: object) -> tuple[SweepFolder, Manifest]:
        with monkeypatch.context() as context:
            context.syspath_prepend(str(folder))
            context.delitem(sys.modules, module, raising=False)
            sweep = command(DesignConfig("one_at_a_time", levels={"work": ["single"]}))
            sweep.workload = {"name": f"{module}:Rocket", **config}
            manifest = plan.make_plan(sweep, Device())
            sys.modules.pop(module)
        return SweepFolder(Path(sweep.runs) / manifest.sweep.name), manifest

    return make


def contents(folder: SweepFolder) -> dict[str, bytes]:
    return {str(file): file.read_bytes() for file in folder.path.rglob("*") if file.is_file()}


def test_another_workload_of_the_same_name_is_refused_and_nothing_is_written(
    planned: Plan, tmp_path: Path
) -> None:
    files = [write_module(tmp_path / place, "launcher", place) for place in ("one", "two")]
    folder, first = planned("launcher", tmp_path / "one")
    launch.prepare(folder, first, "")
    before = contents(folder)
    again, second = planned("launcher", tmp_path / "two")
    assert again.path == folder.path
    with pytest.raises(ConfigError) as refused:
        launch.prepare(again, second, "other")
    for said in (*map(str, files), "runs=PATH", str(folder.path)):
        assert said in str(refused.value)
    assert contents(folder) == before


@pytest.mark.parametrize("change", ["nothing", "its sources", "its configuration"])
def test_the_same_workload_goes_on_whatever_changed(planned: Plan, tmp_path: Path, change: str) -> None:
    write_module(tmp_path / "one", "launcher")
    launch.prepare(*planned("launcher", tmp_path / "one"), "")
    if change == "its sources":
        file = write_module(tmp_path / "one", "launcher", unit="start of another length")
        os.utime(file, (1, 1))
    config = {"size": 32} if change == "its configuration" else {}
    folder, manifest = planned("launcher", tmp_path / "one", **config)
    launch.prepare(folder, manifest, "")
    assert folder.read_manifest() == manifest


def test_sources_that_were_moved_go_on_where_they_are(planned: Plan, tmp_path: Path) -> None:
    write_module(tmp_path / "one", "launcher")
    launch.prepare(*planned("launcher", tmp_path / "one"), "")
    (tmp_path / "one").rename(tmp_path / "moved")
    folder, manifest = planned("launcher", tmp_path / "moved")
    launch.prepare(folder, manifest, "")
    assert folder.read_manifest().sweep.origin == f"{tmp_path}/moved/launcher.py:Rocket"


def test_a_folder_from_before_origins_were_kept_goes_on(planned: Plan, tmp_path: Path) -> None:
    for place in ("one", "two"):
        write_module(tmp_path / place, "launcher", place)
    folder, first = planned("launcher", tmp_path / "one")
    older = first.model_copy(update={"sweep": first.sweep.model_copy(update={"origin": ""})})
    launch.prepare(folder, older, "")
    launch.prepare(*planned("launcher", tmp_path / "two"), "")
    assert folder.read_manifest().sweep.origin == f"{tmp_path}/two/launcher.py:Rocket"


def test_a_folder_whose_plan_cannot_be_read_is_planned_anew(planned: Plan, tmp_path: Path) -> None:
    write_module(tmp_path / "one", "launcher")
    folder, manifest = planned("launcher", tmp_path / "one")
    folder.path.mkdir(parents=True)
    folder.manifest_file.write_text("torn")
    launch.prepare(folder, manifest, "")
    assert folder.read_manifest() == manifest


def test_workloads_that_ship_or_are_installed_are_told_by_module_wherever_they_lie() -> None:
    assert registry.origin(registry.find("digits")) == "perfsweep.workloads.digits.workload:Digits"


def test_a_workload_may_say_what_tells_it_from_others(planned: Plan, tmp_path: Path) -> None:
    file = write_module(tmp_path / "one", "launcher")
    file.write_text(file.read_text() + '    origin = "elsewhere/train.py"\n')
    assert planned("launcher", tmp_path / "one")[1].sweep.origin == "elsewhere/train.py"
