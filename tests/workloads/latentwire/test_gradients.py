"""Gradients of a window piece by piece, with an objective whose loss can be worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from bare_arms import bare
from torch import Tensor, nn

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.latentwire.data.batches import Piece, Window

VALUES = [1.0, 2.0, 4.0, 8.0]


def window(*sizes: int) -> Window:
    """Pieces of rows in the order of `VALUES`, all of one width."""
    pieces, first = [], 0
    for size in sizes:
        rows = torch.tensor(VALUES[first : first + size])[:, None]
        pieces.append(Piece(rows, torch.arange(size), tuple(range(size)), []))
        first += size
    return Window(pieces, sum(sizes))


class Linear:
    """Two models of one weight each behind an encoder of one: w0 x, 2 w1 x; a penalty of 100 times w0."""

    def __init__(self) -> None:
        self.encoder, self.w0, self.w1 = (nn.Parameter(torch.ones(())) for _ in range(3))
        self.models = {0: self.w0, 1: self.w1}
        self.parameters = [self.encoder, self.w0, self.w1]
        self.draws: list[float] = []

    def latents(self, piece: Piece) -> Tensor:
        self.draws.append(float(torch.rand(())))
        return self.encoder * piece.source

    def model_loss(self, number: int, z: Tensor, piece: Piece) -> tuple[Tensor, Tensor]:
        loss = (number + 1) * self.models[number] * z.sum()
        return loss, torch.stack([loss.detach() * share for share in (1, 2, 3, 4, 5)])

    def scale_penalty(self) -> Tensor:
        return 100 * self.w0

    def gradients(self) -> list[float]:
        return [0.0 if p.grad is None else float(p.grad) for p in self.parameters]


def accumulator(
    objective: Any, levels: dict[str, Any] | None = None, scale: float = 1.0, **config: Any
) -> Any:
    """An arm whose objective is another."""
    made = bare({"sync": "late", **(levels or {}), "amp": "off" if scale == 1 else "fp16"}, **config)
    for name in ("latents", "model_loss", "scale_penalty", "models"):
        setattr(made, name, getattr(objective, name))
    made.optimise({"all": objective.parameters}, 1)
    made.loss_scale = torch.tensor(scale)
    return made


BACKOFF = {"oom": "backoff"}
EACH, BOTH = {"accum": "backward_each"}, {"accum": "backward_each", "model_backward": "per_model"}
TOTAL = sum(VALUES)
GRADIENTS = [3 * TOTAL, TOTAL + 100, 2 * TOTAL]


@pytest.mark.parametrize(
    ("form", "sizes", "backward", "kept"),
    [
        ({}, (4,), 1, 1),
        ({}, (2, 1, 1), 1, 3),
        (EACH, (2, 1, 1), 3, 0),
        (BOTH, (4,), 4, 0),  # two models, the penalty, the encoder
        (BOTH, (2, 2), 7, 0),
    ],
)
@pytest.mark.parametrize("scale", [1.0, 8.0])
def test_every_form_adds_the_same_gradients_and_counts_its_passes(
    form: dict[str, Any], sizes: tuple[int, ...], backward: int, kept: int, scale: float
) -> None:
    objective = Linear()
    made = accumulator(objective, form, scale)
    terms, counts = made.gradients(window(*sizes)), made.counts
    assert objective.gradients() == pytest.approx([scale * gradient for gradient in GRADIENTS])
    assert terms.tolist() == pytest.approx(
        [3 * TOTAL * share for share in (1, 2, 3, 4, 5)] + [3 * TOTAL + 100]
    )
    assert counts["micro_steps"] == len(sizes)
    assert counts["backward_calls"] == backward
    assert counts["graphs_kept"] == kept
    assert counts["syncs"] == 0


@pytest.mark.parametrize(
    ("above", "sizes", "steps", "retries"), [(1, (4,), 1 + 1 + 4, 2), (2, (4,), 1 + 2, 1), (4, (4,), 1, 0)]
)
def test_a_window_that_does_not_fit_is_halved_until_it_does_and_the_size_is_remembered(
    above: int, sizes: tuple[int, ...], steps: int, retries: int
) -> None:
    objective = Linear()
    made = accumulator(objective, BACKOFF, oom_above=above)
    counts = made.counts
    torch.manual_seed(0)
    made.gradients(window(*sizes))
    assert objective.gradients() == pytest.approx(GRADIENTS)
    assert (counts["micro_steps"], counts["retries"]) == (steps, retries)
    torch.manual_seed(0)
    assert objective.draws[0] == float(torch.rand(()))  # as if nothing had been tried before
    made.gradients(window(*sizes))
    assert counts["retries"] == retries


def test_without_a_second_try_memory_that_runs_out_is_an_error() -> None:
    with pytest.raises(torch.OutOfMemoryError, match=r"injected: 4 rows are more than workload\.oom_above=3"):
        accumulator(Linear(), oom_above=3).gradients(window(4))
    with pytest.raises(ConfigError, match="memory ran out with a single row"):
        accumulator(Linear(), BACKOFF, oom_above=0).gradients(window(4))


def test_a_window_that_is_only_tried_leaves_no_trace() -> None:
    objective, state, auto = Linear(), torch.get_rng_state(), {"micro_batch": "auto"}
    made = accumulator(objective, auto)
    made.attempt(window(2, 2))
    assert not made.counts
    assert objective.gradients() == [0.0, 0.0, 0.0]
    assert torch.equal(torch.get_rng_state(), state)
    with pytest.raises(torch.OutOfMemoryError):
        accumulator(objective, {**auto, **BACKOFF}, oom_above=1).attempt(window(2))
