"""A program and its YAML: ``workload=NAME:FILE.yaml``."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from perfsweep.pipelines.commands.arguments import candidates
from perfsweep.pipelines.commands.catalog import COMMANDS
from perfsweep.pipelines.config import composition, external_workload, names, validation
from perfsweep.pipelines.config.types import SweepCommand
from perfsweep.pipelines.plan import plan
from perfsweep.workloads import custom_toggles
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


def test_paths_in_it_are_relative_to_it_wherever_the_command_is_typed(folder: Path) -> None:
    assert composed("run", "workload=script:mine/train.yaml")["workload"]["path"] == str(
        folder / "mine/train.py"
    )


def test_the_command_line_wins_over_it(folder: Path) -> None:
    found = composed("sweep", "workload=script:mine/train.yaml", "sweep=full", "workload.every=2")
    assert (found["workload"]["every"], found["sweep"]["name"]) == (2, "full")


def test_any_registered_workload_takes_one(folder: Path) -> None:
    (folder / "small.yaml").write_text("width: 20\n")
    found = composed("run", "workload=digits:small.yaml")["workload"]
    assert (found["name"], found["width"], found["lr"]) == ("digits", 20, 3.0e-3)


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


def test_toggles_are_the_same_after_the_manifests_json(folder: Path) -> None:
    _, config = plan.load_workload(planned("workload=script:mine/train.yaml").workload)
    again = json.loads(json.dumps(asdict(config)))
    own = custom_toggles.read(config.toggles)
    assert custom_toggles.read(again["toggles"]) == own
    assert [[level.value for level in toggle.levels] for toggle in own.toggles] == [["off", "on"], [1, 4]]
    assert plan.make_plan(planned("workload=script:mine/train.yaml"), Device()).arms, "an identity sorts keys"
    in_yaml = external_workload.read_mapping(folder / "mine/train.yaml")["toggles"]
    assert custom_toggles.read(in_yaml) == own


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("path: train.py\narg: x", "arg is unknown; did you mean args?"),
        ("path: train.py\nsweep: {}", "sweep is unknown; did you mean sweeps?"),
        ("sweeps: 3", "sweeps must be a mapping"),
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
    ("name", "message"),
    [
        ("script:absent.yaml", "absent.yaml does not exist"),
        ("scirpt:mine/train.yaml", "scirpt is no workload; did you mean script?"),
    ],
)
def test_a_file_or_a_workload_that_is_not_there_is_named(folder: Path, name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        composed("sweep", f"workload={name}")


def test_what_must_be_given_is_asked_for() -> None:
    validation.register()
    with pytest.raises(ConfigError, match=r"workload\.path is missing: give it as workload\.path=VALUE"):
        planned("workload=script")


def test_completion_offers_the_files_that_give_what_a_workload_needs(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder / "mine")
    (folder / "mine/other.yaml").write_text("width: 3\n")
    assert "script:train.yaml" in names.workloads_here()
    assert not [name for name in names.workloads_here() if name.endswith("other.yaml")]
    assert candidates(COMMANDS, "perfsweep sweep workload=script:") == ["workload=script:train.yaml"]
    offered = candidates(COMMANDS, "perfsweep sweep workload=script:train.yaml sweep=")
    assert {"sweep=quick", "sweep=full", "sweep=ablation"} <= set(offered)


@pytest.mark.parametrize(
    "arguments",
    [
        "--lr=0.1 --name='a b'",
        '--name="it\'s" --flag',
        "lr=0.1 hydra.run.dir={scratch}",
        "--pattern=a\\",
        "--seed={seed}",
    ],
)
def test_arguments_of_a_program_are_taken_as_they_were_typed(folder: Path, arguments: str) -> None:
    found = composed("run", "workload=script", "workload.path=x.py", f"workload.args={arguments}")
    assert found["workload"]["args"] == arguments


def test_a_number_among_a_workloads_values_stays_one(folder: Path) -> None:
    assert composed("run", "workload=digits", "workload.lr=-1e-3")["workload"]["lr"] == -1.0e-3
    assert (
        composed("run", "workload=script", "workload.path=x", "workload.args=-v")["workload"]["args"] == "-v"
    )
