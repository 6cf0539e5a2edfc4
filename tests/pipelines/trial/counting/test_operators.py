"""Which operators work, multiply, or read from a device: each call is counted once for what it does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from perfsweep.pipelines.trial.counting.operators import OperatorCalls


def counted(work: Callable[[], Any]) -> OperatorCalls:
    calls = OperatorCalls()
    with calls.mode():
        work()
    return calls


A, B = torch.ones(2, 3), torch.ones(3, 4)
BATCH = torch.ones(5, 2, 3)
HALF = torch.ones(2, 3, dtype=torch.bfloat16)
PICTURE, KERNEL = torch.ones(1, 2, 5, 5), torch.ones(4, 2, 3, 3)


@pytest.mark.parametrize(
    ("work", "ops", "flops", "low"),
    [
        (lambda: A @ B, 1, 2 * 2 * 3 * 4, 0),
        (lambda: torch.addmm(torch.ones(4), A, B), 2, 48, 0),
        (lambda: torch.bmm(BATCH, BATCH.mT), 1, 5 * 2 * 2 * 3 * 2, 0),
        (lambda: HALF @ HALF.mT, 1, 2 * 2 * 3 * 2, 1),
        (lambda: torch.conv2d(PICTURE, KERNEL), 1, 2 * 9 * 4 * 2 * 9, 0),
        (lambda: HALF + 1, 1, 0, 0),
        (lambda: A.view(3, 2), 0, 0, 0),
        (lambda: A.mT, 0, 0, 0),
        (lambda: A.add_(1), 1, 0, 0),
        (lambda: torch.relu(A).sum(), 2, 0, 0),
    ],
    ids=["mm", "addmm", "bmm", "half", "convolution", "half sum", "view", "transpose", "in place", "two"],
)
def test_a_call_counts_for_what_it_does(work: Callable[[], Any], ops: int, flops: int, low: int) -> None:
    calls = counted(work)
    assert (calls.ops, calls.flops, calls.low_precision_ops) == (ops, flops, low)


@pytest.mark.parametrize(
    ("work", "reads"),
    [(lambda: A.sum().item(), 1), (lambda: torch.equal(A, A), 1), (lambda: A[A > 0], 0), (lambda: A + 1, 0)],
    ids=["item", "equal", "mask", "sum"],
)
def test_on_the_host_only_scalars_are_read(work: Callable[[], Any], reads: int) -> None:
    assert counted(work).host_reads == reads


def test_attention_is_two_products_and_its_gradient_five() -> None:
    query = torch.ones(1, 2, 3, 8, requires_grad=True)
    key, value = torch.ones(1, 2, 5, 8), torch.ones(1, 2, 5, 8)
    pairs, each = 2 * 3 * 5, 2 * 8
    forward = counted(lambda: torch.nn.functional.scaled_dot_product_attention(query, key, value))
    assert forward.flops == pairs * each * 2
    both = counted(
        lambda: torch.nn.functional.scaled_dot_product_attention(query, key, value).sum().backward()
    )
    assert both.flops == pairs * each * (2 + 5)


def test_a_product_without_a_formula_is_noted_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = OperatorCalls()
    assert calls.notes == ()
    calls._formulas = {}
    with calls.mode():
        A @ B
        A @ B
        HALF @ HALF.mT
    assert calls.notes == ("torch has no FLOP formula for mm",)
    assert (calls.ops, calls.flops, calls.low_precision_ops) == (3, 0, 1)
