"""Workloads from a folder, package or entry point; and a program with its YAML, ``NAME:FILE.yaml``."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from omegaconf import OmegaConf
from typed import ended

from perfsweep.pipelines.config import composition, external_workload, validation
from perfsweep.pipelines.config.types import SweepCommand
from perfsweep.pipelines.plan import plan
from perfsweep.workloads import registry
from perfsweep.workloads.api import Device
from perfsweep.workloads.errors import ConfigError

MODULE = """
from dataclasses import dataclass
from perfsweep.workloads.api import Check, Evidence, Level, Toggle, Workload

@dataclass
class Config:
    size: int = 1
    other: str = "a"

class Own(Workload):
    Config = Config
    toggles = (Toggle("speed", (Level("slow"), Level("fast"), Level("faster")), "go faster"),)
    checks = (Check("x"),)
    def setup(self, config, levels, context): ...
    def step(self, clock): ...
    def progress(self): return 1.0
    def evidence(self): return Evidence()
"""
YAML = """
workload:
  size: 7
sweeps:
  quick:
    designs: [{kind: one_at_a_time, levels: {speed: [fast]}}]
    measure: {rounds: 6}
    references: {base: {speed: faster}}
  long:
    designs: [{kind: one_at_a_time}]
"""

OF_A_SCRIPT = """
path: train.py
args: --size=3
toggles:
  flash: {off: "--flash=False", on: "--flash=True", parity: tolerance}
  accum: {1: "--accum=1", 4: "--accum=4"}
sweeps:
  quick: {toggles: [flash], measure: {rounds: 6}}
  full: {designs: [{kind: one_at_a_time}]}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/train.py").write_text("import torch\n")
    (tmp_path / "mine/train.yaml").write_text(OF_A_SCRIPT)
    return tmp_path


def write(folder: Path, name: str, yaml: str = YAML) -> None:
    place = folder / name
    place.parent.mkdir(parents=True, exist_ok=True)
    place.with_suffix(".py").write_text(MODULE)
    place.with_suffix(".yaml").write_text(yaml)


def composed(command: str, *arguments: str) -> dict:
    values = OmegaConf.to_container(composition.compose(command, arguments))
    assert isinstance(values, dict)
    return {str(key): value for key, value in values.items()}


def test_a_module_of_a_package_has_its_yaml_beside_it_and_is_not_imported(folder: Path) -> None:
    write(folder, "packed/deep/mine")
    (folder / "packed/__init__.py").write_text("raise RuntimeError('imported')")
    (folder / "packed/deep/__init__.py").write_text("")
    assert external_workload.read("packed.deep.mine:Own").workload == {"size": 7}


def test_an_entry_point_is_found_with_its_yaml(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(folder, "pointed")
    info = folder / "pointed-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: pointed\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[perfsweep.workloads]\nby_name = pointed:Own\n")
    found = composed("sweep", "workload=by_name")
    assert found["workload"] == {"name": "by_name", "size": 7}
    assert (found["sweep"]["name"], found["measure"]["rounds"]) == ("quick", 6)
    assert found["sweep"]["references"]["base"] == {"speed": "faster"}
    assert ended("sweep", "workload=by_name", "dry_run=true") == 0
    assert "workload by_name, 3 arms" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("yaml", "message"),
    [
        ("zoo: 1\nsweep: {}", "sweep is unknown; the YAML of a workload has workload and sweeps"),
        ("sweeps: &own [*own]", "cannot be read: its aliases make it too large"),
        ("sweeps: " + "[" * 2000 + "]" * 2000, "it is nested too deeply. Write it with fewer levels"),
    ],
    ids=["an unknown entry", "an alias of itself", "too deep"],
)
def test_a_yaml_that_cannot_be_meant_is_refused_by_file_and_entry(
    folder: Path, yaml: str, message: str
) -> None:
    write(folder, "wrong", yaml)
    with pytest.raises(ConfigError, match=message) as error:
        composed("sweep", "workload=wrong:Own")
    assert "wrong.yaml" in str(error.value)


def test_paths_in_a_yaml_alone_are_meant_from_its_folder(folder: Path) -> None:
    (folder / "cases").mkdir()
    file = folder / "cases/Own Case.yaml"
    file.write_text("path: ../train.py\nargs: [--fast]\nsweeps:\n  quick: {toggles: [amp]}\n")
    found = external_workload.read(f"script:{file}")
    assert (found.name, found.title, found.default_sweep) == ("script", "own-case", "quick")
    read = found.read_as(registry.find("script"))
    assert read.workload == {"path": str(folder / "train.py"), "args": ["--fast"]}
    file.write_text("path: ''\n")
    assert external_workload.read(f"script:{file}").read_as(registry.find("script")).workload == {"path": ""}
    file.write_text("pathh: train.py\n")
    with pytest.raises(
        ConfigError, match=r"pathh is unknown; did you mean path\? it has sweeps and the fields"
    ):
        external_workload.read(f"script:{file}").read_as(registry.find("script"))


def planned(*arguments: str) -> SweepCommand:
    return validation.typed(composition.compose("sweep", arguments), SweepCommand)


def test_its_values_are_the_registered_workloads_and_its_first_sweep_the_default(folder: Path) -> None:
    found = composed("sweep", "workload=script:mine/train.yaml")
    assert found["workload"]["name"] == "script"
    assert found["workload"]["args"] == "--size=3"
    assert found["workload"]["every"] == 1, "what the file leaves out is as without it"
    assert (found["sweep"]["name"], found["measure"]["rounds"]) == ("quick", 6)


def test_a_list_of_toggles_is_short_for_one_at_a_time(folder: Path) -> None:
    manifest = plan.make_plan(planned("workload=script:mine/train.yaml"), Device())
    assert [(effect.toggle, effect.level) for effect in manifest.effects] == [("flash", "on")]


@pytest.mark.parametrize(
    ("file", "more", "name"),
    [
        ("Small model.yaml", (), "small-model-quick"),
        ("train.yaml", ("sweep=full",), "train-full"),
        ("train.yaml", ("name=mine",), "mine"),
    ],
)
def test_folders_are_named_after_the_file_as_several_may_measure_one_script(
    folder: Path, file: str, more: tuple[str, ...], name: str
) -> None:
    (folder / "mine" / file).write_text(OF_A_SCRIPT)
    assert planned(f"workload=script:mine/{file}", *more).name == name


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("path: train.py\narg: x", "arg is unknown; did you mean args?"),
        ("sweeps: {q: [amp]}", r"sweeps\.q must be a mapping"),
        ("sweeps: {q: {mesure: {}}}", r"sweeps\.q\.mesure is unknown; did you mean measure?"),
        ("sweeps: {q: {toggles: {amp: bf16}}}", r"sweeps\.q measures nothing.*\{toggles: \[amp, compile\]\}"),
        ("sweeps: {q: {toggles: [a], designs: []}}", r"sweeps\.q has both designs and a list of toggles"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_the_file_and_the_nearest_name(
    folder: Path, text: str, message: str
) -> None:
    (folder / "wrong.yaml").write_text(text)
    with pytest.raises(ConfigError, match=message) as error:
        composed("sweep", "workload=script:wrong.yaml")
    assert str(folder / "wrong.yaml") in str(error.value)
