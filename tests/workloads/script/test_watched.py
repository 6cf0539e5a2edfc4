"""What is seen of a training loop and its batches from PyTorch's side, and that nothing of it stays."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_sequence
from torch.optim import LBFGS, SGD, Adam, Optimizer
from torch.utils.data import DataLoader, TensorDataset

from perfsweep.workloads.script.batches import DIGESTED_ROWS, rows_of, tensors_of
from perfsweep.workloads.script.watched import Watched

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
    assert watched.modules == (made,) and watched.input_dims[made] == {2}
    assert watched.parameters() == list(made.parameters())
    assert (watched.epoch, watched.closures) == (3, set())


class Around(nn.Module):
    """What a library makes for one call, with a cycle to itself, around the model of its user."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner
        self.itself = [self]

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)


class Listed(nn.Sequential):
    """A model of a script that gives its parameters as a list."""

    def parameters(self, recurse: bool = True) -> list[nn.Parameter]:  # type: ignore[override]
        return [*super().parameters(recurse)]


@pytest.mark.parametrize("kept", [False, True])
def test_a_module_that_is_made_for_one_call_is_none_of_the_models_but_what_it_calls_is(
    watched: Watched, kept: bool
) -> None:
    made, held = model(), []

    def call(x: Tensor) -> Tensor:
        around = Around(made)
        held.append(around if kept else None)
        return around(x)

    call(ROWS).mean().backward()
    watched.end_search()
    assert watched.modules == (tuple(held) if kept else (made,))


def test_a_model_may_give_its_parameters_as_a_list(watched: Watched) -> None:
    made = Listed(nn.Linear(4, 1))
    train(made, 2)
    assert watched.modules == (made,) and watched.parameters() == made.parameters()


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


def test_the_loss_of_an_iteration_is_the_sum_of_what_backward_was_called_on(watched: Watched) -> None:
    weight = nn.Parameter(torch.tensor(2.0))
    for factors in ((1.0, 3.0), (5.0,), ()):
        for factor in factors:
            (factor * weight).backward()
        torch.autograd.backward([weight * 1.0, weight * 1.0])  # not one loss
        watched.end_iteration()
    assert [float(loss) for loss in watched.losses] == [8.0, 10.0]
    assert watched.counts["iterations"] == 3


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
    over: list[Any] = []  # told of updates within a backward pass once it has returned
    watched.over.append(over.append)
    weight.register_post_accumulate_grad_hook(lambda _: over.append((optimiser.step(), optimiser.step())))
    weight.sum().backward()
    assert over == [(None, None), (id(optimiser),)]


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


ONE, TWO = torch.zeros(3), torch.zeros(2, 2)


@dataclass(slots=True)
class Pair:
    image: Tensor
    target: Tensor


class Encoding:
    data = {"ids": TWO}


def graphs(count: int) -> Any:
    """A batch as libraries of graphs have it: a row for each node, further inside one for each edge."""
    store = SimpleNamespace(x=torch.zeros(40, 3), edge_index=torch.zeros(2, 90))
    return SimpleNamespace(num_graphs=count, store=store)


def test_tensors_are_found_in_what_libraries_give_as_batches() -> None:
    assert [*tensors_of([{"a": ONE}, (Encoding(), "text", 3)])] == [ONE, TWO]
    assert [*tensors_of(Pair(ONE, TWO))] == [ONE, TWO]
    assert len([*tensors_of(graphs(2))]) == 2
    assert [*tensors_of([nn.Linear(2, 2), Pair])] == []
    nested: Any = ONE
    for depth in range(1, 6):  # four objects within one another are looked into
        nested = SimpleNamespace(inner=nested)
        assert [*tensors_of([nested])] == ([ONE] if depth <= 4 else [])


@pytest.mark.parametrize(
    ("batch", "asked", "rows"),
    [
        ([torch.tensor(1.0), TWO, ONE], None, 2),
        (graphs(5), None, 5),
        ([(torch.zeros(3, 9, 9), 1)] * 4, 4, 4),  # a list of examples, as detection has it
        (pack_sequence([torch.zeros(5), torch.zeros(2)]), 2, 2),
        ({"tokens": torch.zeros(57), "offsets": torch.zeros(8)}, 8, 8),
        ((torch.zeros(7, 4), torch.zeros(7)), 8, 7),  # the last batch of an epoch
        ((torch.zeros(9, 4), torch.zeros(9)), 1, 9),  # of a data set that gives whole batches
        (([1, 2, 3], ["a"]), None, 2),
        ("abc", None, 0),
        (3, 2, 2),
    ],
)
def test_examples_are_counted_by_what_a_batch_says_and_its_lengths(
    batch: Any, asked: int | None, rows: int
) -> None:
    assert rows_of(batch, asked) == rows
