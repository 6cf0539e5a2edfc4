"""What no level can mean of a configuration, and what levels leave to others."""

from __future__ import annotations

from typing import Any

import pytest
from declared import faults

from perfsweep.pipelines.plan.arms import Space
from perfsweep.workloads.api import Device, Parity
from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.spd import variants
from perfsweep.workloads.spd.config import SpdConfig
from perfsweep.workloads.spd.variants import TOGGLES, arm, cuda_graph, host_work, loading, masking, updating

OWN = {"target": "tests:Network", "tokens_path": "t.npy", "modules": ["a"], "components": 3}
GRAPH = {"cuda_graph": "on", "metrics": "deferred", "mask_checks": "off"}


@pytest.mark.parametrize(
    ("config", "levels", "said"),
    [
        (OWN, {"fused_target_ops": "on"}, "fused_target_ops=on"),
        (OWN, {"prefix_reuse": "on", "patching": "wrapper"}, "prefix_reuse=on"),
        ({"drop_last": False}, GRAPH, "a graph has one batch size"),
        ({}, {**GRAPH, "amp": "fp16", "pgd_inner": "detached"}, "the host reads whether scaled gradients"),
        ({"microbatches": 2}, {"micro_batch": "loop"}, "cannot share adversarial sources"),
    ],
)
def test_a_level_that_cannot_act_on_a_configuration_is_refused(
    config: dict[str, Any], levels: dict[str, Any], said: str
) -> None:
    made = SpdConfig(**config)
    with pytest.raises(ConfigError, match=said):
        Space(TOGGLES, made, Device()).legal(Space(TOGGLES, made, Device()).closure(levels))


@pytest.mark.parametrize(
    ("toggle", "same", "others"),
    [
        (cuda_graph.CUDA_GRAPH, {"frozen_draws": True}, [{}]),
        (masking.STACK_MODULES, {}, [{"canonical_draws": False}]),
        (
            updating.MICRO_BATCH,
            {"frozen_draws": True, "beta": 0.0},
            [{"frozen_draws": True, "beta": 0.5}, {"beta": 0.0}],
        ),
    ],
    ids=lambda one: getattr(one, "name", None),
)
def test_masks_are_others_unless_a_configuration_keeps_them(
    toggle: Any, same: dict[str, Any], others: list[dict[str, Any]]
) -> None:
    loosened = toggle.levels[1].loosened
    assert loosened is not None
    assert loosened(SpdConfig(**same), {}) is None
    assert {loosened(SpdConfig(**other), {}) for other in others} == {Parity.STOCHASTIC}


@pytest.mark.parametrize(
    ("toggle", "level", "switch"),
    [
        ("pin_memory", "on", "pinned"),
        ("non_blocking", "on", "non_blocking"),
        ("cuda_graph", "on", "capturable"),
        ("tf32", "on", "tf32"),
        ("delta", "folded", "folds"),
        ("stack_modules", "stacked", "stacked"),
        ("fused_target_ops", "on", "fused_target"),
    ],
)
def test_a_level_that_is_a_switch_of_the_reference_sets_it(toggle: str, level: str, switch: str) -> None:
    base = {one.name: one.levels[0].value for one in TOGGLES}
    off, on = (getattr(arm({**base, toggle: value}), switch) for value in (base[toggle], level))
    assert (off, on) == (False, True)


def test_the_naive_arm_loads_in_its_own_process_and_profiles_as_the_report_does() -> None:
    assert faults(TOGGLES, variants) == []
    assert [level.value for level in loading.NUM_WORKERS.levels] == [0, 2, 4, 8]
    assert (host_work.WAIT, host_work.WARMUP, host_work.ACTIVE) == (1, 1, 3)
