"""A program and its YAML: ``workload=NAME:FILE.yaml``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from perfsweep.pipelines.config import composition, validation
from perfsweep.pipelines.config.types import SweepCommand
from perfsweep.pipelines.plan import plan
from perfsweep.workloads.api import Device
from perfsweep.workloads.errors import ConfigError

YAML = """
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
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/train.py").write_text("import torch\n")
    (tmp_path / "mine/train.yaml").write_text(YAML)
    validation.register()
    return tmp_path


def composed(command: str, *arguments: str) -> dict[Any, Any]:
    values = OmegaConf.to_container(composition.compose(command, arguments))
    assert isinstance(values, dict)
    return values


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
    (folder / "mine" / file).write_text(YAML)
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


@pytest.mark.parametrize(
    "arguments", ["--lr=0.1 --name='a b'", '--name="it\'s" --flag', "lr=0.1 hydra.run.dir={scratch}"]
)
def test_arguments_of_a_program_are_taken_as_they_were_typed(folder: Path, arguments: str) -> None:
    found = composed("run", "workload=script", "workload.path=x.py", f"workload.args={arguments}")
    assert found["workload"]["args"] == arguments
