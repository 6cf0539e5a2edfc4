"""The detector of host synchronisations finds each kind that is planted, and nothing else."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from host_syncs import HostSyncs
from torch import Tensor

X = torch.linspace(-1.0, 1.0, 12).reshape(3, 4)
PLACES = torch.tensor([0, 2])


def syncs(work: Callable[[], object]) -> list[str]:
    with HostSyncs() as watch:
        work()
    return [found.partition(" in ")[0] for found in watch.found]


MUTANTS: dict[str, tuple[Callable[[], object], str]] = {
    "item": (lambda: X.sum().item(), "_local_scalar_dense"),
    "condition": (lambda: bool(X.sum() > 0), "_local_scalar_dense"),
    "float": (lambda: float(X.sum()), "_local_scalar_dense"),
    "nonzero": (lambda: X.nonzero(), "nonzero"),
    "mask": (lambda: X[X > 0], "index"),
    "select": (lambda: X.masked_select(X > 0), "masked_select"),
    "unique": (lambda: X.unique(), "_unique2"),
    "cpu": (lambda: X.cpu(), "cpu()"),
    "to": (lambda: X.to("cpu"), "to()"),
    "numpy": (lambda: X.numpy(), "numpy()"),
    "list": (lambda: X.tolist(), "tolist()"),
    "from the host": (lambda: torch.tensor([1.0, 2.0]), "tensor()"),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_synchronisation_is_found(name: str) -> None:
    work, found = MUTANTS[name]
    assert found in syncs(work)


def training() -> Tensor:
    weight = torch.ones(4, 4, requires_grad=True)
    loss = torch.where(X > 0, X @ weight, X).index_select(0, PLACES).logsumexp(-1)[PLACES[:1]].mean()
    loss.backward()
    return torch.zeros_like(X).scatter_(1, X.argmax(1, keepdim=True), 1.0)


def test_arithmetic_of_known_shapes_makes_nobody_wait() -> None:
    assert syncs(training) == []
