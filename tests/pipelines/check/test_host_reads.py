"""Reads of what the same iteration computed, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from perfsweep.pipelines.check.trials import Read, ReadWatch

X = torch.ones(4)


def watched(step: Callable[[], Any], times: int = 3) -> list[Read]:
    watch = ReadWatch()
    with watch:
        for number in range(times):
            if number:
                watch.next_iteration()
            step()
    return watch.always()


@pytest.mark.parametrize(
    ("read", "call"),
    [
        (lambda x: x.sum().item(), ".item()"),
        (lambda x: float(x.sum()), "float(...)"),
        (lambda x: bool(x.sum() > 0), "a condition on a tensor"),
        (lambda x: f"{x.sum():.2f}", "formatting a tensor"),
        (lambda x: np.asarray(x * 2), "numpy.asarray(...)"),
        (lambda x: [1, 2, 3][(x.sum() - 4).long()], "an index"),
        (lambda x: (x * 2).detach().cpu(), ".cpu()"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_was_just_computed_is_a_read_by_the_words_of_its_line(read: Any, call: str) -> None:
    (found, *others) = watched(lambda: read(X))
    assert found.call == call and found.file == __file__ and not others


@pytest.mark.parametrize(
    "step",
    [
        lambda: X.item() if X.numel() == 1 else X.tolist(),
        lambda: X.detach().tolist(),
        lambda: X.sum(),
        lambda: X.sum().shape[0:],
    ],
    ids=["what was there before", "under another name", "nothing", "a shape"],
)
def test_what_is_no_read_of_the_iterations_own(step: Callable[[], Any]) -> None:
    assert watched(step) == []


def test_a_value_of_the_iteration_before_has_arrived() -> None:
    late: list[torch.Tensor] = [torch.ones(1)]

    def step() -> None:
        late[0].item()
        late[:] = [X.sum()]

    assert watched(step) == []


def test_what_happens_now_and_then_may_wait() -> None:
    count = [0]

    def step() -> None:
        count[0] += 1
        total = X.sum()
        if count[0] != 2:
            total.item()

    assert watched(step) == []


def test_a_sparse_tensor_has_no_storage_and_breaks_nothing() -> None:
    assert watched(lambda: torch.eye(2).to_sparse_coo().sum()) == []
