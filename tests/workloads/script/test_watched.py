"""What is seen of a training loop from PyTorch's side, and that nothing of it stays."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import LBFGS, SGD, Adam, Optimizer
from torch.utils.data import DataLoader, TensorDataset

from perfsweep.workloads.script.batches import DIGESTED_ROWS
from perfsweep.workloads.script.watched import KEPT_LOSSES, Watched, gradients_of

ROWS = torch.arange(40.0).reshape(10, 4)


@pytest.fixture
def undo() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def watched(undo: ExitStack) -> Watched:
    return Watched(undo)


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 1))


def train(made: nn.Module, batches: int, batch: int = 4, rows: torch.Tensor = ROWS, **step: Any) -> Optimizer:
    """A loop as scripts have it: as many batches, then an evaluation that is no training."""
    optimiser = Adam(made.parameters(), lr=0.1)
    loader = iter(DataLoader(TensorDataset(rows), batch))
    for _ in range(batches):
        (x,) = next(loader)
        optimiser.zero_grad()
        made(x).mean().backward()
        optimiser.step(**step)
    with torch.no_grad():
        made.eval()(next(iter(DataLoader(TensorDataset(rows), batch)))[0])
    return optimiser


def test_batches_losses_updates_and_outermost_models_are_seen(watched: Watched) -> None:
    made = model()
    optimiser = train(made, 3)
    assert dict(watched.counts) == {
        "batches": 3, "examples": 10, "worker_batches": 0, "backward_calls": 3, "optimizer_steps": 3
    }  # fmt: skip
    assert watched.optimizers == [optimiser] == list(watched.made)
    assert list(watched.modules) == [made] and watched.input_dims == {made: {2}}
    assert watched.parameters() == list(made.parameters())
    assert (watched.epoch, watched.closures) == (3, set())


def test_after_the_search_counts_begin_anew_and_models_are_as_they_were(watched: Watched) -> None:
    calling = nn.Module.__call__
    train(model(), 3)
    watched.end_search()
    assert nn.Module.__call__ is not calling
    assert not watched.counts and watched.in_setup["batches"] == 3
    train(other := model(), 2)
    assert other not in watched.modules
    assert (watched.total("batches"), watched.counts["batches"]) == (5, 2)
    assert watched.cadence == 1  # three batches of set-up are one iteration of an epoch of three


@pytest.mark.parametrize(
    ("batches", "batch", "cadence"), [(1, 4, 3), (1, 1, 10), (2, 1, 5), (3, 1, 4), (1, 10, 1)]
)
def test_an_epoch_is_as_many_iterations_as_its_batches_need(
    watched: Watched, batches: int, batch: int, cadence: int
) -> None:
    train(model(), batches, batch)
    watched.end_search()
    assert watched.cadence == cadence


def test_an_epoch_that_is_too_long_is_not_waited_for(watched: Watched) -> None:
    train(model(), 1, 1, torch.zeros(51, 4))
    watched.end_search()
    assert (watched.epoch, watched.cadence) == (51, 1)


def test_the_loss_of_an_iteration_is_the_sum_of_what_backward_was_called_on(watched: Watched) -> None:
    weight = nn.Parameter(torch.tensor(2.0))
    for factors in ((1.0, 3.0), (5.0,), ()):
        for factor in factors:
            (factor * weight).backward()
        torch.autograd.backward([weight * 1.0, weight * 1.0])  # not one loss
        watched.end_iteration()
    assert [float(loss) for loss in watched.losses] == [8.0, 10.0]
    assert watched.counts["iterations"] == 3


def test_losses_are_kept_in_memory_that_neither_the_script_nor_later_ones_use(watched: Watched) -> None:
    for value in range(KEPT_LOSSES + 3):
        loss = nn.Parameter(torch.tensor(float(value))) * 1
        loss.backward()
        with torch.no_grad():
            loss.fill_(-1.0)
        watched.end_iteration()
    assert [float(loss) for loss in watched.losses] == [float(value) for value in range(3, KEPT_LOSSES + 3)]
    assert len({loss.untyped_storage().data_ptr() for loss in watched.losses}) == 1


def test_closures_and_updates_within_updates_are_one_update(watched: Watched) -> None:
    class Twice(SGD):
        def step(self, closure: Any = None) -> Any:
            return super().step(closure)

    weight, ready = nn.Parameter(torch.ones(1)), []
    watched.before_update.append(lambda one: ready.append(None if weight.grad is None else 1))
    done: list[Optimizer] = []
    watched.after_update.append(done.append)
    optimiser = Twice([weight], lr=0.1)

    def closure() -> Any:
        (loss := weight.sum()).backward()
        return loss

    optimiser.step(closure)
    assert watched.closures == {"Twice"}
    weight.grad = None
    closure()
    optimiser.step()
    assert ready == [1, 1], "told before there were gradients"
    assert done == [optimiser, optimiser] and watched.counts["optimizer_steps"] == 2
    LBFGS([weight], max_iter=2).step(closure)
    assert watched.closures == {"Twice", "LBFGS"}


def test_backward_passes_that_nobody_uses_are_told_once(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perfsweep.workloads.script.watched.FRUITLESS", 3)
    told: list[int] = []
    watched.fruitless = lambda: told.append(watched.counts["backward_calls"])
    weight = nn.Parameter(torch.ones(()))
    for _ in range(5):
        (weight * 1).backward()
    assert told == [3]


def digest(batch: int, rows: torch.Tensor = ROWS) -> str:
    with ExitStack() as undo:
        watched = Watched(undo)
        train(model(), 2, batch, rows)
        return watched.data_digest


def test_data_are_recognised_however_they_are_cut_and_told_apart_by_a_row() -> None:
    assert digest(1, ROWS[:2]) != digest(2)
    assert digest(4) == digest(2) == digest(4, ROWS.double().float()) == digest(3)
    changed = ROWS.clone()
    changed[DIGESTED_ROWS - 1, 0] += 1
    assert digest(4, changed) != digest(4)
    changed = ROWS.clone()
    changed[DIGESTED_ROWS] += 1
    assert digest(4, changed) == digest(4)


def test_without_a_loader_the_inputs_of_the_models_tell_the_data_apart(watched: Watched) -> None:
    assert watched.data_digest == ""
    model()(ROWS)
    first = watched.data_digest
    assert len(first) == 64
    with ExitStack() as undo:
        other = Watched(undo)
        model()(ROWS + 1)
        assert other.data_digest not in ("", first)


def test_in_the_end_pytorch_is_as_it_was() -> None:
    names = [(nn.Module, "__call__"), (Optimizer, "__init__"), (torch.autograd, "backward")]
    before = [getattr(owner, name) for owner, name in names]
    with ExitStack() as undo:
        watched = Watched(undo)
        assert all(getattr(owner, name) is not old for (owner, name), old in zip(names, before, strict=True))
    assert [getattr(owner, name) for owner, name in names] == before
    train(model(), 2)
    assert not watched.counts and not watched.made


def test_gradients_stand_in_a_row_with_zeros_where_there_are_none() -> None:
    first, second = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(1, 2))
    (3 * first.double()).sum().backward()
    assert gradients_of([first, second]).tolist() == [3, 3, 0, 0]
    assert gradients_of([]).shape == (0,)


def test_sparse_gradients_are_read_with_all_of_their_zeros() -> None:
    gradients = []
    for sparse in (False, True):
        torch.manual_seed(0)
        table = nn.Embedding(5, 3, sparse=sparse)
        table(torch.tensor([1, 1, 4])).square().sum().backward()
        gradients.append(gradients_of(table.parameters()))
    assert torch.equal(*gradients)
