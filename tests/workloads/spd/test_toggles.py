"""What no level can mean of a configuration, and what levels leave to others."""

from __future__ import annotations

from typing import Any

import pytest

from perfsweep.pipelines.plan.arms import Space
from perfsweep.workloads.api import Device, Parity
from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.spd.config import SpdConfig
from perfsweep.workloads.spd.variants import TOGGLES

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


def test_masks_of_a_graph_are_others_unless_they_are_frozen() -> None:
    (graph,) = [toggle for toggle in TOGGLES if toggle.name == "cuda_graph"]
    loosened = graph.levels[1].loosened
    assert loosened is not None
    assert loosened(SpdConfig(), {}) is Parity.STOCHASTIC
    assert loosened(SpdConfig(frozen_draws=True), {}) is None
