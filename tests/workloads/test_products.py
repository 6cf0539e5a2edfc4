"""Products of our kernels are right to rounding, and made only where and for what they are meant."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from perfsweep.workloads.products import NativeProducts, products, takes_bfloat16

pytestmark = pytest.mark.workloads

BOUND = {torch.float32: 2e-6, torch.float64: 1e-14, torch.bfloat16: 4e-3}
"""Of the whole product; bfloat16 rounds each element once, by at most 2^-8."""
SIZES = [(8, 8, 1), (13, 33, 7), (12, 32, 256), (70, 17, 300), (128, 650, 128), (9, 48, 513), (250, 40, 31)]
"""Rows, columns and terms of a sum: whole blocks, rests of each kind, more terms or rows than a piece has."""


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


def expected(dtype: torch.dtype) -> int:
    """Products of ours for one that is asked for: bfloat16 is the library's where it has matrix tiles."""
    return int(dtype != torch.bfloat16 or takes_bfloat16())


@pytest.mark.parametrize("dtype", BOUND)
@pytest.mark.parametrize("across", [(False, False), (False, True), (True, False), (True, True)])
@pytest.mark.parametrize(("m", "n", "k"), SIZES)
def test_a_product_is_its_definition(native, m, n, k, across, dtype) -> None:
    a, b = drawn(m, k, across[0], dtype), drawn(k, n, across[1], dtype)
    found, ours = made(native, lambda: a @ b)
    assert ours == expected(dtype)
    assert apart(found, by_one_sum(a, b)) <= BOUND[dtype]


@pytest.mark.parametrize(("dtype", "times"), [(torch.float32, 1000), (torch.bfloat16, 5)])
def test_a_product_that_lacks_one_term_is_seen(native, dtype, times) -> None:
    a, b = torch.randn(70, 300, dtype=dtype), torch.randn(300, 17, dtype=dtype)
    found, _ = made(native, lambda: a[:, 1:] @ b[1:])
    assert apart(found, by_one_sum(a, b)) > times * BOUND[dtype]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 3.4e38])
@pytest.mark.parametrize("across", [False, True])
def test_a_number_that_is_not_finite_stays_in_its_row_and_column(native, value, across) -> None:
    a, b = drawn(30, 21, across, torch.bfloat16), drawn(21, 45, across, torch.bfloat16)
    a[7, 20] = b[20, 40] = value
    found, _ = made(native, lambda: a @ b)
    finite = torch.ones(30, 45, dtype=torch.bool)
    finite[7], finite[:, 40] = False, False
    assert found[finite].isfinite().all()
    assert torch.equal(found[7].isnan(), by_one_sum(a, b)[7].isnan())


def test_a_row_does_not_depend_on_the_rows_computed_with_it(native) -> None:
    a, b = torch.randn(250, 77).bfloat16(), torch.randn(77, 45).bfloat16()
    across = a.T.contiguous().T
    found, _ = made(native, lambda: torch.cat([(a @ b)[100:108], a[100:108] @ b, across[100:108] @ b]))
    assert torch.equal(found[:8], found[8:16])
    assert torch.equal(found[:8], found[16:])


FORMS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "bias": lambda a, b, c: F.linear(a, b.T, c),
    "added": lambda a, b, c: torch.addmm(c.expand(len(a), -1).contiguous(), a, b),
    "in place": lambda a, b, c: c.expand(len(a), -1).clone().addmm_(a, b),
    "scaled": lambda a, b, c: torch.addmm(c / 2, a, b * 4, beta=2.0, alpha=0.25),
    "given": lambda a, b, c: torch.mm(a, b, out=a.new_empty(len(a), b.shape[1])) + c,
    "batched": lambda a, b, c: torch.baddbmm(c, a.expand(3, -1, -1), b.expand(3, -1, -1))[2],
    "batched apart": lambda a, b, c: torch.bmm(a.repeat(2, 1, 1), b.repeat(2, 1, 1))[1] + c,
    "three": lambda a, b, c: F.linear(a.unflatten(0, (5, -1)), b.T, c).flatten(0, 1),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_a_product_is_right(native, form, dtype) -> None:
    a, b, c = (torch.randn(shape, dtype=dtype) for shape in ((40, 21), (21, 50), (50,)))
    found, _ = made(native, lambda: FORMS[form](a, b, c))
    assert apart(found, by_one_sum(a, b) + c) <= 2 * BOUND[dtype]  # forms that add by themselves round twice


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
        (torch.ones(16, 16, dtype=torch.float16), torch.ones(16, 16, dtype=torch.float16)),
        (torch.ones(16, 16, dtype=torch.int64), torch.ones(16, 16, dtype=torch.int64)),
        (torch.ones(2, 16), torch.ones(16, 16)),
        (torch.ones(16, 0), torch.ones(0, 16)),
        (torch.ones(16, 32)[:, ::2], torch.ones(16, 16)),
    ],
    ids=["float16", "integers", "few rows", "no terms", "with gaps"],
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


def test_under_autocast_all_three_products_of_a_layer_are_ours(native) -> None:
    layer, x = torch.nn.Linear(24, 40), torch.randn(32, 24, requires_grad=True)
    incoming = torch.randn(32, 40).bfloat16()

    def compute() -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            out = layer(x)
        out.backward(incoming)
        return out

    found, ours = made(native, compute)
    assert found.dtype == torch.bfloat16
    assert ours == 3 * expected(torch.bfloat16)
    assert x.grad is not None and layer.weight.grad is not None
    assert apart(x.grad, by_one_sum(incoming, layer.weight.detach())) <= 2 * BOUND[torch.bfloat16]
    assert apart(layer.weight.grad, by_one_sum(incoming.T, x.detach())) <= 2 * BOUND[torch.bfloat16]
