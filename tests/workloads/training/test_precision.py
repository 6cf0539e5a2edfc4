"""What `amp` and `tf32` set, and what they leave alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
import torch

from perfsweep.workloads.training.precision import autocast, fp32_precisions, set_tf32, tf32_is_on

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("level", "dtype"), [("off", torch.float32), ("bf16", torch.bfloat16), ("fp16", torch.float16)]
)
def test_products_run_in_the_type_of_the_level(level: str, dtype: torch.dtype) -> None:
    one, context = torch.ones(2, 2), autocast(level, CPU)
    for _ in range(2):  # it may be entered again
        with context:
            assert (one @ one).dtype == dtype
    assert (one @ one).dtype == torch.float32


@pytest.mark.parametrize(
    ("on", "strict", "products", "convolutions"),
    [
        (True, False, "high", True),
        (False, False, "highest", True),
        (False, True, "highest", False),
        (True, True, "high", True),
    ],
)
def test_tf32_of_products_and_convolutions_is_set_and_put_back(
    on: bool, strict: bool, products: str, convolutions: bool
) -> None:
    before = not on
    with ExitStack() as outer:
        set_tf32(before, outer, strict=True)
        with ExitStack() as undo:
            set_tf32(on, undo, strict=strict)
            assert torch.get_float32_matmul_precision() == products
            assert torch.backends.cudnn.allow_tf32 == convolutions
            assert tf32_is_on() == on
        assert torch.get_float32_matmul_precision() == ("high" if before else "highest")
        assert torch.backends.cudnn.allow_tf32 == before


@pytest.fixture
def own_precisions() -> Iterator[None]:
    """A process that uses torch's newer interface, after which the older getters raise."""
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    torch.backends.cudnn.conv.fp32_precision = "ieee"
    yield
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = True


def test_a_process_that_chose_its_precisions_by_name_keeps_them(own_precisions: None) -> None:
    assert tf32_is_on()
    before = fp32_precisions()
    assert (before["cuda.matmul"], before["cudnn.conv"]) == ("tf32", "ieee")
    for on in (False, True):
        with ExitStack() as undo:
            set_tf32(on, undo)
            assert tf32_is_on() == on
        assert fp32_precisions() == before
