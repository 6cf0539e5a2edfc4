"""Functions that a script has compiled: updates are seen when they return, and nothing of ours is in them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, nullcontext
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import SGD, Adam, Optimizer

from perfsweep.workloads.script.compiled_calls import CompiledCalls
from perfsweep.workloads.script.watched import Watched


@pytest.fixture
def compiled_again() -> Iterator[None]:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    yield
    torch._dynamo.reset()


@pytest.fixture
def watched() -> Iterator[Watched]:
    with ExitStack() as undo:
        yield Watched(undo)


class Graphs:
    """A backend that keeps what it is given, and runs it as it is."""

    def __init__(self) -> None:
        self.code: list[str] = []

    def __call__(self, graph: Any, example: Any) -> Any:
        self.code.append(graph.print_readable(print_output=False))
        return graph.forward


class Training:
    """A model with an optimiser, and what was seen of its updates and of the gradients before them."""

    def __init__(self, watched: Watched, optimizer: type[Optimizer] = SGD, **options: Any) -> None:
        self.watched, self.graphs = watched, Graphs()
        self.model = nn.Linear(4, 4)
        self.optimizer = optimizer(self.model.parameters(), lr=0.1, **options)
        self.over: list[object] = []
        self.gradients: list[float] = []
        watched.over.append(self.over.append)
        watched.before_update.append(lambda one: self.gradients.append(float(self.model.weight.grad.sum())))

    def backward(self) -> None:
        self.model(torch.ones(2, 4)).sum().backward()


def test_a_function_that_updates_is_known_by_its_first_call() -> None:
    """Compiled or not: the function is one, and stands for what `torch.compile` makes."""
    told: list[object] = []
    model = nn.Linear(2, 2)
    one, idle = SGD(model.parameters(), lr=0.1), SGD([torch.ones(1)], lr=0.1)
    calls = CompiledCalls(lambda: [idle, one], nullcontext, told.append, lambda *what: told.append(what))
    step = calls._outside(one.step)
    model(torch.ones(1, 2)).sum().backward()
    step()
    calls._outside(step)()  # of calls within one another the outermost tells
    assert told == [(one, False), (one, False)]
    step()
    assert told[2:] == [one, (one, True)]
    model.zero_grad()
    step()
    assert told[4:] == [one]
    assert calls._outside(model) is model and calls._outside(nn.Linear) is nn.Linear


@pytest.mark.workloads
@pytest.mark.usefixtures("compiled_again")
def test_the_updates_of_a_compiled_step_are_told_when_it_returns(watched: Watched) -> None:
    for optimizer, options in ((SGD, {"momentum": 0.9}), (Adam, {}), (Adam, {"fused": True})):
        own = Training(watched, optimizer, **options)
        step = torch.compile(lambda own=own: own.optimizer.step(), backend=own.graphs)
        watched.compiled.listening = True
        for number in range(1, 4):
            own.optimizer.zero_grad()
            own.backward()
            step()
            assert len(own.over) == number
        assert own.gradients == [32.0] * 3, "told while gradients were there"
        watched.over.clear()
        watched.before_update.clear()
    assert watched.counts["optimizer_steps"] == 9


@pytest.mark.workloads
@pytest.mark.usefixtures("compiled_again")
def test_nothing_of_ours_is_traced(watched: Watched) -> None:
    own = Training(watched)

    @torch.compile(backend=own.graphs)
    def train() -> None:
        own.optimizer.zero_grad()
        own.backward()
        own.optimizer.step()

    for _ in range(3):
        train()
    breaks = [*torch._dynamo.utils.counters["graph_break"]]
    assert own.graphs.code and not any("perfsweep" in code for code in own.graphs.code)
    assert not any("getframe" in why or "get_ident" in why for why in breaks)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == len(own.graphs.code) < 6
    assert len(own.over) == watched.counts["backward_calls"] == 3
