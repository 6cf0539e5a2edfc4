"""What judging reads of a workload is in the manifest."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from toys.spinner import Spinner

from perfsweep.pipelines.config.types import DesignConfig
from perfsweep.pipelines.plan import plan
from perfsweep.pipelines.store.records import Arm, Manifest
from perfsweep.pipelines.store.schema import Declared, DeclaredLevel, declare, declared_by
from perfsweep.workloads.api import Device, Level, Numbers, Parity, Toggle

ODD = Arm(id="odd", label="batch=3", levels={"batch": 3, "drop": "off"})
BOTH = Arm(id="both", label="batch=3,drop=on", levels={"batch": 3, "drop": "on"})


class Dropping(Spinner):
    """Batches of another size draw other numbers where anything is dropped at all."""

    toggles = (
        Toggle(
            "batch",
            (Level(1),),
            "examples at once",
            numbers=Numbers(
                1,
                like=Level(
                    1,
                    bounds={"trace": 1e-3},
                    witness="batches",
                    in_code="batches of {value}",
                    loosened=lambda config, levels: Parity.STOCHASTIC if levels["drop"] == "on" else None,
                ),
            ),
        ),
        Toggle("drop", (Level("off"), Level("on", parity=Parity.TOLERANCE)), "drop some"),
        Toggle("never", (Level("off"), Level("on")), "no arm has this"),
    )
    claims = ()


@pytest.fixture
def manifest(command) -> Manifest:
    design = DesignConfig("one_at_a_time", levels={"half": ["on"], "slab": [4, 8]})
    return plan.make_plan(command(design), Device())


@pytest.mark.parametrize(
    ("levels", "word"),
    [
        ({"a": "on", "b": "off"}, "yes"),
        ({"a": "off", "b": "on"}, "as graphs"),
        ({"a": 8, "b": "on"}, "CPU only"),
        ({"a": "old", "b": "on"}, ""),
    ],
)
def test_an_arm_acts_on_a_gpu_as_far_as_its_levels_do(levels: dict, word: str) -> None:
    values = {
        "a": {"off": "yes", "on": "yes", 8: "CPU only", "old": ""},
        "b": {"off": "yes", "on": "as graphs"},
    }
    known = {
        name: tuple(DeclaredLevel(value=value, on_gpu=text) for value, text in own.items())
        for name, own in values.items()
    }
    declared = Declared(unit="pair", shape="steps", checks=(), levels=known)
    assert declared.on_gpu(Arm(id="x", label="x", levels=levels)) == word


def test_the_class_that_other_levels_demand_is_decided_by_the_plan() -> None:
    declared = declare(Dropping, Dropping.Config(), [ODD, BOTH])
    level = declared.levels_of(ODD)["batch"]
    expected = {"value": 3, "parity": Parity.EXACT, "bounds": {"trace": 1e-3}, "witness": "batches"}
    assert level.model_dump() == {**expected, "in_code": "batches of 3", "on_gpu": "yes"}
    assert declared.levels_of(BOTH)["batch"].parity is Parity.STOCHASTIC
    assert declared.levels_of(BOTH)["drop"].parity is Parity.TOLERANCE


def test_the_unit_is_the_one_that_the_workload_saw_as_it_ran(manifest: Manifest) -> None:
    def trial(unit: str) -> Any:
        return SimpleNamespace(record=SimpleNamespace(unit=unit))

    planned = declared_by(manifest).unit
    assert declared_by(manifest, [trial("")]).unit == planned
    assert declared_by(manifest, [trial(""), trial("word")]).unit == "word"
