"""The loss of a piece from its terms, with each option on top, and the shares that make a whole."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from bare_arms import bare

from perfsweep.workloads.latentwire.data.batches import Piece
from perfsweep.workloads.latentwire.maths import losses
from perfsweep.workloads.latentwire.workload import LatentWire

MIXTURE = [1.0, 0.5, 0.5, 1.0]


def computed(workload: LatentWire, number: int = 1) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, Piece]:
    """Loss and terms of one model, the latents and the piece they are of."""
    (piece,) = workload.arm.window_of([0, 1, 2]).pieces
    z = workload.arm.latents(piece)
    return (*workload.arm.loss(workload.arm.models[number], z, piece.models[number]), z, piece)


@pytest.fixture
def exact(start) -> Any:
    return lambda levels=None, **config: start(levels, dtype="float64", **config)


def test_a_loss_is_its_terms_by_their_weights(exact) -> None:
    workload = exact()
    loss, terms, z, piece = computed(workload)
    assert terms.shape == (5,) and terms[4] == 0 and not terms.requires_grad and loss.requires_grad
    assert loss.item() == pytest.approx(sum(w * t for w, t in zip(MIXTURE, terms[:4].tolist(), strict=True)))
    share, shares = workload.arm.model_loss(1, z, piece)
    assert share.item() == pytest.approx(loss.item() / 2) and torch.allclose(shares, terms / 2)


def test_the_first_token_counts_as_much_more_as_it_is_worse_within_limits(exact) -> None:
    lifts = []
    for seed in (0, 2):
        workload = exact(adaptive_first=True, data_seed=seed)
        loss, terms, *_ = computed(workload)
        lift = min(max(terms[1].item() / terms[0].item(), 1.0), 8.0)
        weights = [1.0, 0.5 * lift, 0.5, 1.0]
        assert loss.item() == pytest.approx(
            sum(w * t for w, t in zip(weights, terms[:4].tolist(), strict=True))
        )
        lifts.append(lift)
    assert max(lifts) > 1.0 and len(set(lifts)) > 1


def test_soft_tokens_are_held_to_the_tables_mean_and_spread(exact) -> None:
    workload = exact(manifold=True)
    loss, terms, z, _ = computed(workload)
    model = workload.arm.models[1]
    table, soft = model.lm.table.float(), workload.arm.prefix(model, z).tokens.flatten(0, 1)
    distance = (soft.mean(0) - table.mean(0)).square().mean()
    distance += (soft.std(0, unbiased=False) - table.std(0)).square().mean()
    assert terms[4].item() == pytest.approx(losses.MANIFOLD_WEIGHT * distance.item(), rel=1e-6)
    plain, _, *_ = computed(exact())
    assert loss.item() == pytest.approx(plain.item() + terms[4].item())


def test_states_are_held_to_the_teachers(exact) -> None:
    workload = exact(state_kd=True)
    loss, terms, z, piece = computed(workload)
    model, of_model = workload.arm.models[1], piece.models[1]
    arm = workload.arm
    out = arm.ask(model, arm.prefix(model, z), of_model.answer)
    states = arm.teach(model, of_model.prompts).states
    weights = of_model.weights[2, :, : arm.sizes.early_tokens]
    parts = [
        (weights * (s - t).square().mean(-1)).sum().item() for s, t in zip(out.states, states, strict=True)
    ]
    assert terms[4].item() == pytest.approx(0.1 * sum(parts) / len(parts), rel=1e-5)
    assert loss.item() == pytest.approx(computed(exact())[0].item() + terms[4].item())


@pytest.mark.parametrize(
    ("levels", "reads", "syncs"),
    [
        ({"calibration": "once"}, 0, 0),
        ({"calibration": "per_step", "sync": "late"}, 1, 0),
        ({"calibration": "per_step", "sync": "chatty"}, 1, 1),
    ],
)
def test_soft_tokens_are_as_loud_as_the_table_however_that_is_known(exact, levels, reads, syncs) -> None:
    workload = exact(levels)
    counts, model = workload._counts, workload.arm.models[0]
    counts.clear()
    tokens = workload.arm.prefix(model, torch.ones(2, 4, 32, dtype=torch.float64)).tokens
    table = model.lm.table
    loudness = tokens.square().mean().sqrt().item()
    scale = workload.arm.trained[0].adapter.scale.item()
    assert loudness == pytest.approx(scale * table.square().mean().sqrt().item(), rel=1e-3)
    assert (counts["table_reads"], counts["syncs"]) == (reads, syncs)


def test_scales_of_adapters_are_kept_near_one_by_this_ranks_share(exact) -> None:
    arm = exact().arm
    with torch.no_grad():
        for number, scale in ((0, 1.5), (1, 0.0)):
            arm.models[number].trained.adapter.scale.fill_(scale)
    assert arm.scale_penalty().item() == pytest.approx((0.25 + 1.0) * 0.05 / 2)
    parts = bare({"parallel": "ddp"}, rank=1, world=4)
    parts.models, parts.total_models = arm.models, arm.total_models
    assert parts.scale_penalty().item() == pytest.approx((0.25 + 1.0) * 0.05 / 8)
