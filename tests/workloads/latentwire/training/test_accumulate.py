"""Gradients of a window piece by piece, with an objective whose loss can be worked out by hand."""

from __future__ import annotations

import contextlib
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.latentwire.data.batches import Piece, Window
from perfsweep.workloads.latentwire.training.accumulate import Accumulator, Form

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

    def loss(self, number: int, z: Tensor, piece: Piece, phase: Any) -> tuple[Tensor, Tensor]:
        loss = (number + 1) * self.models[number] * z.sum()
        return loss, torch.stack([loss.detach() * share for share in (1, 2, 3, 4, 5)])

    def scale_penalty(self) -> Tensor:
        return 100 * self.w0

    def gradients(self) -> list[float]:
        return [0.0 if p.grad is None else float(p.grad) for p in self.parameters]


def accumulator(objective: Any, counts: Counter[str], scale: float = 1.0, **form: Any) -> Accumulator:
    optimizer = torch.optim.SGD(objective.parameters, lr=1.0)
    updates: Any = SimpleNamespace(optimizer=optimizer, loss_scale=torch.tensor(scale), scaled=scale != 1)
    fields: dict[str, Any] = {"each": False, "per_model": False, "chatty": False, **form}
    return Accumulator(objective, updates, Form(**fields), counts)


def phase(name: str) -> contextlib.AbstractContextManager[None]:
    return contextlib.nullcontext()


TOTAL = sum(VALUES)
GRADIENTS = [3 * TOTAL, TOTAL + 100, 2 * TOTAL]


@pytest.mark.parametrize(
    ("form", "sizes", "backward", "kept"),
    [
        ({}, (4,), 1, 1),
        ({}, (2, 1, 1), 1, 3),
        ({"each": True}, (2, 1, 1), 3, 0),
        ({"each": True, "per_model": True}, (4,), 4, 0),  # two models, the penalty, the encoder
        ({"each": True, "per_model": True}, (2, 2), 7, 0),
    ],
)
@pytest.mark.parametrize("scale", [1.0, 8.0])
def test_every_form_adds_the_same_gradients_and_counts_its_passes(
    form: dict[str, bool], sizes: tuple[int, ...], backward: int, kept: int, scale: float
) -> None:
    objective, counts = Linear(), Counter[str]()
    terms = accumulator(objective, counts, scale, **form).window(window(*sizes), phase)
    assert objective.gradients() == pytest.approx([scale * gradient for gradient in GRADIENTS])
    assert terms.tolist() == pytest.approx(
        [3 * TOTAL * share for share in (1, 2, 3, 4, 5)] + [3 * TOTAL + 100]
    )
    assert counts["micro_steps"] == len(sizes)
    assert counts["backward_calls"] == backward
    assert counts["graphs_kept"] == kept
    assert counts["syncs"] == 0


def test_a_chatty_training_reads_every_term_twice_and_counts_broken_ones() -> None:
    objective, counts = Linear(), Counter[str]()
    objective.w1.data.fill_(torch.inf)
    accumulator(objective, counts, chatty=True).window(window(2, 2), phase)
    assert counts["syncs"] == 2 * 2 * 2 * 6
    assert counts["broken_terms"] == 2 * 6


def test_a_rank_without_rows_adds_nothing() -> None:
    objective = Linear()
    assert accumulator(objective, Counter()).window(window(), phase).tolist() == [0.0] * 6


@pytest.mark.parametrize(
    ("above", "sizes", "steps", "retries"), [(1, (4,), 1 + 1 + 4, 2), (2, (4,), 1 + 2, 1), (4, (4,), 1, 0)]
)
def test_a_window_that_does_not_fit_is_halved_until_it_does_and_the_size_is_remembered(
    above: int, sizes: tuple[int, ...], steps: int, retries: int
) -> None:
    objective, counts = Linear(), Counter[str]()
    made = accumulator(objective, counts, backoff=True, oom_above=above)
    torch.manual_seed(0)
    made.window(window(*sizes), phase)
    assert objective.gradients() == pytest.approx(GRADIENTS)
    assert (counts["micro_steps"], counts["retries"]) == (steps, retries)
    torch.manual_seed(0)
    assert objective.draws[0] == float(torch.rand(()))  # as if nothing had been tried before
    made.window(window(*sizes), phase)
    assert counts["retries"] == retries


def test_without_a_second_try_memory_that_runs_out_is_an_error() -> None:
    with pytest.raises(torch.OutOfMemoryError, match=r"injected: 4 rows are more than workload\.oom_above=3"):
        accumulator(Linear(), Counter(), oom_above=3).window(window(4), phase)
    with pytest.raises(ConfigError, match="memory ran out with a single row"):
        accumulator(Linear(), Counter(), backoff=True, oom_above=0).window(window(4), phase)


def test_a_window_that_is_only_tried_leaves_no_trace() -> None:
    objective, counts = Linear(), Counter[str]()
    state = torch.get_rng_state()
    accumulator(objective, counts).once(window(2, 2), phase)
    assert objective.gradients() == [0.0, 0.0, 0.0]
    assert torch.equal(torch.get_rng_state(), state)
    with pytest.raises(torch.OutOfMemoryError):
        accumulator(objective, counts, backoff=True, oom_above=1).once(window(2), phase)
