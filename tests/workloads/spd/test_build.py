"""Trainings as they are put together: paths that agree, where one begins, and what cannot go together."""

# Drives `patching` of perfsweep.workloads.spd.variants.
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.spd.maths import losses
from perfsweep.workloads.spd.training.targets import Given
from perfsweep.workloads.spd.workload import Spd

QUIET: dict[str, Any] = {"log_every": 1000, "eval_every": 1000, "save_every": 1000}
SMALL: dict[str, Any] = {
    **QUIET,
    "modules": ["layers.0.attn.k", "layers.1.mlp.fc"],
    "components": 6,
    "batch_size": 4,
    "seq_len": 8,
    "pgd_steps": 1,
    "warmup_steps": 0,
}
OWN: dict[str, Any] = {
    **SMALL,
    "target": "tests:Network",
    "tokens_path": "given",
    "modules": ["body.*"],
    "seq_len": 5,
    "components": 3,
}


def values(workload: Spd) -> dict[str, torch.Tensor]:
    return {
        name: value.detach().clone() for name, value in workload.arm.decomposition.named_tensors().items()
    }


def test_a_seed_decides_on_values_masks_and_batches(start, run) -> None:
    first, same, other = (start(config=SMALL, seed=seed) for seed in (3, 3, 4))
    orders = [one.arm.feed.fetch().values for one in (first, same, other)]
    assert torch.equal(orders[0], orders[1]) and not torch.equal(orders[0], orders[2])
    drawn = [one.arm.draws.random((2, 3)) for one in (first, same, other)]
    for name in drawn[0]:
        assert torch.equal(drawn[0][name], drawn[1][name]) and not torch.equal(drawn[0][name], drawn[2][name])
    for name, value in values(first).items():
        assert torch.equal(value, values(same)[name])
    assert any(not torch.equal(value, values(other)[name]) for name, value in values(first).items())


def test_an_embedding_takes_the_importances_that_read_activations(start) -> None:
    with pytest.raises(ConfigError, match="embed is an embedding and takes only mlp"):
        start(config={"modules": ["embed"]})


def faithfulness(workload: Spd) -> float:
    arm = workload.arm
    return losses.faithfulness(arm.deltas(arm.decomposition.operands())).item()


def test_a_warm_up_brings_components_near_their_weights_and_leaves_no_gradient(start) -> None:
    cold = start(config=SMALL)
    warm = start(config={**SMALL, "warmup_steps": 20, "warmup_lr": 0.01})
    assert faithfulness(warm) < 0.7 * faithfulness(cold)
    parts = warm.arm.decomposition
    assert all(parameter.grad is None for parameter in parts.component_parameters())
    moved = {name for name, value in values(warm).items() if not torch.equal(value, values(cold)[name])}
    assert moved == {name for name in values(cold) if name.startswith("components.")}
    decayed = start(config={**SMALL, "warmup_steps": 20, "warmup_lr": 0.01, "warmup_decay": 5.0})
    (a, b) = (
        sum(value.square().sum() for value in one.arm.decomposition.component_parameters())
        for one in (decayed, warm)
    )
    assert a < b


@pytest.mark.parametrize(("rows", "asked", "batches"), [(300, 2, [4, 4]), (300, 50, [4, 4, 4]), (40, 5, [1])])
def test_no_more_is_held_out_than_there_is(start, network, tokens, rows, asked, batches) -> None:
    given = Given(network, tokens[:rows])
    workload = start(config={**OWN, "eval_batches": asked}, given=given)
    held_out = workload.arm.held_out_batches()
    assert [len(batch) for batch in held_out] == batches
    assert np.array_equal(torch.cat(held_out), workload.arm.held_out.values[: sum(batches)])
