"""Rounding levels stay in bounds, and planted mistakes in the paths of levels do not."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from perfsweep.workloads.api import REPLAY
from perfsweep.workloads.digits.toggles import SIXTEEN_BIT_BOUNDS
from perfsweep.workloads.digits.workload import Digits
from perfsweep.workloads.training import loading

pytestmark = pytest.mark.workloads

ITERATIONS = 24
COMPARED = ("losses", "first_gradient", "probe_logits", "parameters")
# What float32 levels may differ by. Measured over 24 and 55 iterations, seeds 0 to 2: at most 6e-7 for the
# convolutional network and 3e-6 for perceptrons, where AdamW divides tiny gradients by their own size and so
# keeps their rounding.
FLOAT32 = dict.fromkeys(COMPARED, 1e-5)


def relative(arm: torch.Tensor, reference: torch.Tensor) -> float:
    if arm.shape != reference.shape:
        return torch.inf
    difference = (arm.double() - reference.double()).norm() / reference.double().norm()
    return difference.item()


def outside(arm, reference, bounds: dict[str, float]) -> list[str]:
    """Names of checks that fail; a NaN fails. The pipeline replays and judges single iterations."""
    own = {name: bound for name, bound in bounds.items() if name != REPLAY.name}
    return [
        name
        for name, bound in own.items()
        if not relative(arm.tensors[name], reference.tensors[name]) <= bound
    ]


@pytest.fixture(scope="module")
def baselines() -> dict:
    """References by configuration, computed once."""
    return {}


@pytest.fixture
def reference(evidence_of, baselines):
    def compute(**config):
        key = tuple(config.items())
        if key not in baselines:
            baselines[key] = evidence_of(ITERATIONS, config=config)
        return baselines[key]

    return compute


@pytest.mark.parametrize(
    ("level", "config"),
    [
        ("bf16", {}),
        ("bf16", {"model": "mlp", "width": 64, "depth": 2}),
        ("fp16", {"model": "mlp", "width": 64, "depth": 2}),
    ],
)
def test_sixteen_bit_levels_stay_within_their_bounds_and_round(evidence_of, reference, level, config) -> None:
    arm, base = evidence_of(ITERATIONS, amp=level, config=config), reference(**config)
    assert outside(arm, base, SIXTEEN_BIT_BOUNDS) == []
    # They do round: were autocast lost, the exact rule would hold as well.
    assert set(outside(arm, base, FLOAT32)) == set(COMPARED)


def test_the_gradient_bound_implies_the_cosine_it_was_chosen_for(evidence_of, reference) -> None:
    arm, base = (
        evidence.tensors["first_gradient"].double() for evidence in (evidence_of(1, amp="bf16"), reference())
    )
    assert 1 - F.cosine_similarity(arm, base, dim=0).item() <= 1e-3
    worst = SIXTEEN_BIT_BOUNDS["first_gradient"]
    assert 1 - (1 - worst**2) ** 0.5 <= 1e-3


def mean_of_means(self, batch, clock):
    """Mutant: each piece weighs the same, however few rows it has."""
    pieces = list(self._pieces(batch))
    losses = []
    for images, labels in pieces:
        loss = F.cross_entropy(self._forward(images), labels) / len(pieces)
        loss.backward()
        losses.append(loss.detach())
    return sum(losses[1:], start=losses[0])


def without_ragged_piece(size: int):
    """Mutant: a last piece that is smaller than the others is dropped."""

    def pieces(batch):
        kept = [
            piece
            for piece in zip(batch[0].split(size), batch[1].split(size), strict=True)
            if len(piece[1]) == size
        ]
        return iter(kept)

    return pieces


def one_row_twice(size: int):
    """Mutant: pieces overlap by one row."""

    def pieces(batch):
        images, labels = batch
        for first in range(0, len(labels), size):
            begin = max(first - 1, 0)
            yield images[begin : first + size], labels[begin : first + size]

    return pieces


def with_tiny_sign_flip(update):
    """Mutant: one gradient in a thousand has the wrong sign."""

    def step(self, *args, **kwargs):
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.grad.flatten()[::1000].neg_()
        return update(self, *args, **kwargs)

    return step


@pytest.mark.parametrize(
    ("target", "mutant", "levels"),
    [
        (Digits, ("_forward_backward", mean_of_means), {"micro_batch": 48}),
        (loading, ("pieces_of", without_ragged_piece), {"micro_batch": 48}),
        (loading, ("pieces_of", one_row_twice), {"micro_batch": 64}),
        (torch.optim.AdamW, ("step", with_tiny_sign_flip(torch.optim.AdamW.step)), {"optimizer": "fused"}),
        (torch.optim.AdamW, ("zero_grad", lambda self, set_to_none=True: None), {"zero_grad": "none"}),
    ],
    ids=["mean of means", "dropped ragged piece", "row twice", "sign flip", "gradients never dropped"],
)
def test_a_planted_mistake_in_an_exact_level_is_rejected(
    evidence_of, reference, monkeypatch, target, mutant, levels
) -> None:
    base = reference()
    monkeypatch.setattr(target, *mutant)
    assert "parameters" in outside(evidence_of(ITERATIONS, **levels), base, FLOAT32)


def test_a_loader_that_shifts_its_batches_is_rejected(evidence_of, reference, monkeypatch) -> None:
    base, rows_of = reference(), loading.EpochPlan.__iter__
    monkeypatch.setattr(
        loading.EpochPlan, "__iter__", lambda plan: iter([*list(rows_of(plan))[1:], *list(rows_of(plan))[:1]])
    )
    arm = evidence_of(ITERATIONS, num_workers=2)
    assert outside(arm, base, {"losses": 1e-5}) == ["losses"]
    assert outside(arm, base, {"first_gradient": 1e-5}) == []  # the probe is no batch of the plan


def test_a_gradient_that_is_not_unscaled_is_rejected(evidence_of, reference, monkeypatch) -> None:
    config = {"model": "mlp", "width": 64, "depth": 2}
    base = reference(**config)
    monkeypatch.setattr(torch.amp.GradScaler, "get_scale", lambda self: 1.0)
    assert "first_gradient" in outside(
        evidence_of(1, amp="fp16", config=config),
        base,
        {"first_gradient": SIXTEEN_BIT_BOUNDS["first_gradient"]},
    )


def test_a_rounding_level_that_computes_something_else_is_rejected(
    evidence_of, reference, monkeypatch
) -> None:
    base, gelu = reference(), F.gelu
    monkeypatch.setattr(F, "gelu", lambda x: 1.1 * gelu(x))
    assert "first_gradient" in outside(evidence_of(ITERATIONS, amp="bf16"), base, SIXTEEN_BIT_BOUNDS)
