"""Products of our kernels are right to rounding, and made only where and for what they are meant."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from perfsweep.workloads.products import NativeProducts, products

pytestmark = pytest.mark.workloads

BOUND = {torch.float32: 2e-6, torch.float64: 1e-14}
SIZES = [(8, 8, 1), (13, 33, 7), (12, 32, 256), (70, 17, 300), (128, 650, 128), (9, 48, 513)]
"""Rows, columns and terms of a sum: whole blocks, rests of every kind, and more terms than a piece has."""


@pytest.fixture(scope="module")
def native() -> Iterator[NativeProducts]:
    torch.set_num_threads(1)
    with ExitStack() as endings:
        yield NativeProducts(endings, Counter())


def drawn(rows: int, columns: int, across: bool, dtype: torch.dtype) -> Tensor:
    matrix = torch.randn((columns, rows) if across else (rows, columns), dtype=dtype)
    return matrix.T if across else matrix


def by_one_sum(a: Tensor, b: Tensor) -> Tensor:
    """The product as it is defined, without any product of matrices."""
    return (a.double().unsqueeze(-1) * b.double().unsqueeze(-3)).sum(-2)


def apart(found: Tensor, expected: Tensor) -> float:
    return ((found.double() - expected).norm() / expected.norm()).item()


def made(native: NativeProducts, compute: Callable[[], Tensor]) -> tuple[Tensor, int]:
    before = native._counts["native_products"]
    with native:
        found = compute()
    return found, native._counts["native_products"] - before


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("across", [(False, False), (False, True), (True, False), (True, True)])
@pytest.mark.parametrize(("m", "n", "k"), SIZES)
def test_a_product_is_its_definition(native, m, n, k, across, dtype) -> None:
    a, b = drawn(m, k, across[0], dtype), drawn(k, n, across[1], dtype)
    found, ours = made(native, lambda: a @ b)
    assert ours == 1
    assert apart(found, by_one_sum(a, b)) <= BOUND[dtype]


def test_a_product_that_lacks_one_term_is_seen(native) -> None:
    a, b = torch.randn(70, 300), torch.randn(300, 17)
    found, _ = made(native, lambda: a[:, 1:] @ b[1:])
    assert apart(found, by_one_sum(a, b)) > 1000 * BOUND[torch.float32]


FORMS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "bias": lambda a, b, c: F.linear(a, b.T, c),
    "added": lambda a, b, c: torch.addmm(c.expand(len(a), -1).contiguous(), a, b),
    "in place": lambda a, b, c: c.expand(len(a), -1).clone().addmm_(a, b),
    "scaled": lambda a, b, c: torch.addmm(c / 2, a, b * 4, beta=2.0, alpha=0.25),
    "given": lambda a, b, c: torch.mm(a, b, out=torch.empty(len(a), b.shape[1])) + c,
    "batched": lambda a, b, c: torch.baddbmm(c, a.expand(3, -1, -1), b.expand(3, -1, -1))[2],
    "batched apart": lambda a, b, c: torch.bmm(a.repeat(2, 1, 1), b.repeat(2, 1, 1))[1] + c,
    "three": lambda a, b, c: F.linear(a.unflatten(0, (5, -1)), b.T, c).flatten(0, 1),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_a_product_is_right(native, form) -> None:
    a, b, c = torch.randn(40, 21), torch.randn(21, 50), torch.randn(50)
    found, _ = made(native, lambda: FORMS[form](a, b, c))
    assert apart(found, by_one_sum(a, b) + c) <= BOUND[torch.float32]


def test_gradients_are_products_of_ours_too(native) -> None:
    x, w = torch.randn(32, 24, requires_grad=True), torch.randn(24, 40, requires_grad=True)
    _, ours = made(native, lambda: (x @ w).square().sum().backward())  # type: ignore[arg-type, return-value]
    assert ours == 3
    incoming = 2 * by_one_sum(x.detach(), w.detach())
    assert x.grad is not None and w.grad is not None
    assert apart(x.grad, by_one_sum(incoming, w.detach().T)) <= BOUND[torch.float32]
    assert apart(w.grad, by_one_sum(x.detach().T, incoming)) <= BOUND[torch.float32]


@pytest.mark.parametrize(
    "pair",
    [
        (torch.ones(16, 16, dtype=torch.bfloat16), torch.ones(16, 16, dtype=torch.bfloat16)),
        (torch.ones(16, 16, dtype=torch.int64), torch.ones(16, 16, dtype=torch.int64)),
        (torch.ones(2, 16), torch.ones(16, 16)),
        (torch.ones(16, 0), torch.ones(0, 16)),
        (torch.ones(16, 32)[:, ::2], torch.ones(16, 16)),
    ],
    ids=["bfloat16", "integers", "few rows", "no terms", "with gaps"],
)
def test_what_the_kernels_have_no_code_for_goes_to_the_library(native, pair) -> None:
    found, ours = made(native, lambda: pair[0] @ pair[1])
    assert ours == 0
    assert torch.equal(found, pair[0] @ pair[1])


def test_several_threads_are_the_library_s(native) -> None:
    torch.set_num_threads(2)
    try:
        assert made(native, lambda: torch.ones(16, 16) @ torch.ones(16, 16))[1] == 0
    finally:
        torch.set_num_threads(1)


def test_a_product_that_does_not_fit_is_refused_as_ever(native) -> None:
    with native, pytest.raises(RuntimeError, match="cannot be multiplied"):
        torch.ones(16, 16) @ torch.ones(17, 16)


def test_outside_nothing_changes(native) -> None:
    counts: Counter[str] = Counter()
    with ExitStack() as endings:
        inside = products("native", endings, counts)
        torch.ones(16, 16) @ torch.ones(16, 16)
        assert not counts["native_products"]
        with inside:
            torch.ones(16, 16) @ torch.ones(16, 16)
        assert counts["native_products"] == 1
    with products("library", ExitStack(), counts):
        torch.ones(16, 16) @ torch.ones(16, 16)
    assert counts["native_products"] == 1
