"""What the check runs is understood, and can be planned for a GPU without having one."""

from __future__ import annotations

import pytest

from perfsweep.pipelines.config import composition, validation
from perfsweep.pipelines.config.types import SweepCommand
from perfsweep.pipelines.gpu_check.answer import cases
from perfsweep.pipelines.plan import power
from perfsweep.pipelines.plan.plan import load_workload, make_plan
from perfsweep.pipelines.store.records import Manifest
from perfsweep.workloads.api import Device

H100 = Device("cuda", 1, "NVIDIA H100 80GB HBM3", 80 * 2**30, (9, 0), 16, True)
HEADLINES = cases()["headlines"]


def planned(*overrides: str) -> Manifest:
    cfg = composition.compose("sweep", [*overrides, "tracking=disabled"])
    return make_plan(validation.typed(cfg, SweepCommand), H100)


@pytest.mark.parametrize("overrides", HEADLINES, ids=" ".join)
def test_a_gpu_sweep_can_be_planned_for_an_h100_and_decides_something(overrides: list[str]) -> None:
    manifest = planned(*overrides)
    power.refuse_undecidable(manifest)
    assert len(manifest.effects) >= 3
    assert [f"{one.toggle}={one.level}: {one.reason}" for one in manifest.refused] == []
    cls, _ = load_workload({"name": overrides[0].partition("=")[2]})
    levels = [level for arm in manifest.arms for level in cls.levels_of(arm.levels).values()]
    assert any(level.unsupported(Device()) and not level.unsupported(H100) for level in levels)


@pytest.mark.parametrize(
    "case", cases()["kernels"], ids=lambda case: f"{case['workload']['name']}-{case['levels']}"
)
def test_levels_of_kernels_exist_and_act_on_an_h100(case: dict) -> None:
    cls, _ = load_workload(dict(case["workload"]))
    chosen = {name: value for name, (value,) in case["levels"].items()} | case.get("toggles", {})
    assert [level.unsupported(H100) for level in cls.levels_of(chosen).values()] == [None] * len(chosen)
