"""Configuration: what Hydra composes is typed, and mistakes are sentences."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest
from hydra import compose, initialize_config_module
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig, OmegaConf

from perfsweep.pipelines.config import composition, names, validation
from perfsweep.pipelines.config.types import COMMANDS, ArmResources, ClusterConfig, SweepCommand
from perfsweep.pipelines.plan import plan
from perfsweep.slurm.errors import ClusterError
from perfsweep.workloads import registry
from perfsweep.workloads.api import Device
from perfsweep.workloads.errors import ConfigError


@pytest.fixture
def hydra() -> Iterator[None]:
    for command in COMMANDS:
        validation.register(command)
    GlobalHydra.instance().clear()
    with initialize_config_module("perfsweep.conf", version_base="1.3"):
        yield


MISTAKES = [
    ("measure.precision=0", "measure.precision=0.0 must be above zero"),
    ("tracking.share=1.5", "tracking.share=1.5 must be above zero and at most 1"),
    ("retry=[ok]", "retry=ok is unknown; choose from: failed, oom"),
]


@pytest.fixture(scope="module")
def sweep() -> DictConfig:
    """A sweep without overrides."""
    return composition.compose("sweep", [])


@pytest.mark.parametrize(("override", "message"), MISTAKES)
def test_a_value_out_of_range_names_its_field(sweep: DictConfig, override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        validation.typed(OmegaConf.merge(sweep, OmegaConf.from_dotlist([override])), SweepCommand)


@pytest.mark.usefixtures("hydra")
@pytest.mark.parametrize("name", sorted(registry.BUILT_IN))
def test_the_yaml_of_a_workload_lists_exactly_the_fields_of_its_config(name: str) -> None:
    composed = OmegaConf.to_container(compose("sweep", [f"workload={name}"]).workload)
    fields = {field.name for field in dataclasses.fields(registry.find(name).Config)}
    assert set(composed) == fields | {"name"}


@pytest.mark.usefixtures("hydra")
@pytest.mark.parametrize(
    "workload",
    [
        pytest.param(name, marks=pytest.mark.workloads if name != "digits" else ())
        for name in sorted(registry.BUILT_IN)
        if name != "command"  # whose toggles are the user's
    ],
)
def test_every_named_sweep_of_a_workload_can_be_planned(workload: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("")
    needed = [f"workload.{key}={program}" for key in names.needed(workload)]
    for name in names.sweeps(workload):
        group = f"{workload}/{name}" if name != "ablation" or workload == "" else name
        try:
            cfg = compose("sweep", [f"workload={workload}", f"sweep={group}", *needed])
        except Exception:  # noqa: BLE001 - the sweep is one for any workload, not this workload's own
            cfg = compose("sweep", [f"workload={workload}", f"sweep={name}", *needed])
        command = validation.typed(cfg, SweepCommand)
        if plan.load_workload(command.workload)[0].toggles:
            assert plan.make_plan(command, Device()).effects


def test_one_word_where_a_list_belongs_is_answered_with_the_list() -> None:
    with pytest.raises(
        ConfigError, match=r"^workload\.lora_targets=q is no list: write 'workload\.lora_targets=\[q\]'$"
    ):
        validation.workload_config(registry.find("latentwire"), {"lora_targets": "q"})


@pytest.mark.parametrize(
    ("values", "sentence"),
    [({"widht": 3}, r"workload.widht does not exist; did you mean width\? Digits has: .*depth.*, width")],
)
def test_a_mistake_in_a_workloads_own_field_names_it(values: dict[str, object], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        validation.workload_config(registry.find("digits"), values)


def test_the_rule_that_cannot_be_met_is_named_by_its_place() -> None:
    rules = [ArmResources(time_min=5), ArmResources(cpus_per_task=1, gpus=0), ArmResources(gpus=-1)]
    ClusterConfig(arm_resources=rules[:2]).check()
    with pytest.raises(ClusterError, match=r"^cluster\.arm_resources\[2\]: cluster\.gpus=-1 must be at le"):
        ClusterConfig(arm_resources=rules).check()
