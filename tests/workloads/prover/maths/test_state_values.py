"""How often states are valued: each time, once in a step, once in a job."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from perfsweep.workloads.prover.maths import state_values
from perfsweep.workloads.prover.maths.state_values import EveryState, OncePerJob, distinct

BASE = 20


def states(*numbers: int) -> Tensor:
    """A state for each number, whose value is ten times that."""
    return torch.tensor([[[1, number, 2], [0, 0, 0]] for number in numbers]).view(-1, 2, 3)


class Network:
    """Ten times the first argument, in two columns, of at most three states at once."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def __call__(self, given: Tensor) -> Tensor:
        self.asked.append(len(given))
        return (10.0 * given[:, 0, 1].float()).view(-1, 1).expand(-1, 2)


def firsts(values: Tensor) -> list[int]:
    assert values.shape[1:] == (2,)
    return values[:, 0].int().tolist()


def test_states_are_valued_a_cacheful_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_values, "CHUNK", 3)
    network = Network()
    values = EveryState(network)
    for numbers in (range(7), range(5, 12), range(3), range(4)):
        assert firsts(values(states(*numbers))) == [10 * number for number in numbers]
    assert (network.asked, values.evaluated) == ([3, 3, 1, 3, 3, 1, 3, 3, 1], 7 + 7 + 3 + 4)


def test_states_that_share_a_hash_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        state_values, "hash_states", lambda given, base: torch.zeros(len(given), dtype=torch.int64)
    )
    first, group = distinct(states(1, 1, 2, 2, 1), BASE)
    numbers = states(1, 1, 2, 2, 1)[first[group]][:, 0, 1]
    assert numbers.tolist() == [1, 1, 2, 2, 1]
    values = OncePerJob(Network(), BASE, width=2, room=8, device=torch.device("cpu"))
    for _ in range(2):
        assert firsts(values(states(1, 2, 1))) == [10, 20, 10]
