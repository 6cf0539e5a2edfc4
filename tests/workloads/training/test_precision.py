"""What `amp` and `tf32` set, and what they leave alone."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
import torch

from perfsweep.workloads.errors import UnsupportedHere
from perfsweep.workloads.training.precision import (
    autocast,
    autocast_of,
    fp32_precisions,
    grad_scaler,
    set_tf32,
    tf32_is_on,
)

CPU = torch.device("cpu")
BF16 = lambda: torch.autocast("cpu", torch.bfloat16)  # noqa: E731


@pytest.mark.parametrize(
    ("level", "dtype"), [("off", torch.float32), ("bf16", torch.bfloat16), ("fp16", torch.float16)]
)
def test_products_run_in_the_type_of_the_level(level: str, dtype: torch.dtype) -> None:
    one, context = torch.ones(2, 2), autocast(level, CPU)
    for _ in range(2):  # it may be entered again
        with context:
            assert (one @ one).dtype == dtype
    assert (one @ one).dtype == torch.float32


@pytest.mark.parametrize(("level", "scales"), [("off", False), ("bf16", False), ("fp16", True)])
def test_losses_are_scaled_in_fp16_alone(level: str, scales: bool) -> None:
    assert grad_scaler(level, CPU).is_enabled() == scales
    assert autocast_of(level, None, CPU)[1].is_enabled() == scales
    assert grad_scaler("fp16", CPU, init_scale=8.0).get_scale() == 8.0


@pytest.mark.parametrize(
    ("own", "dtype", "scales"),
    [
        (BF16, torch.bfloat16, False),
        (lambda: torch.autocast("cpu", torch.float16), torch.float16, True),
        (lambda: torch.autocast("cpu", torch.float16, enabled=False), torch.float32, False),
        (contextlib.nullcontext, torch.float32, False),
    ],
)
def test_a_precision_of_the_trainings_own_is_entered_anew(own, dtype: torch.dtype, scales: bool) -> None:
    context, scaler = autocast_of("off", own, CPU)
    one = torch.ones(2, 2)
    for _ in range(2):
        with context:
            assert (one @ one).dtype == dtype
    assert scaler.is_enabled() == scales


def test_a_training_is_not_cast_twice() -> None:
    with pytest.raises(UnsupportedHere, match=r"toggles\.amp=bf16 is refused: .*remove that, or leave amp"):
        autocast_of("bf16", BF16, CPU)


@pytest.mark.parametrize(
    ("on", "strict", "products", "convolutions"),
    [
        (True, False, "high", True),
        (False, False, "highest", True),
        (False, True, "highest", False),
        (True, True, "high", True),
    ],
)
@pytest.mark.parametrize("before", [True, False])
def test_tf32_of_products_and_convolutions_is_set_and_put_back(
    on: bool, strict: bool, products: str, convolutions: bool, before: bool
) -> None:
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


def test_setting_tf32_and_putting_it_back_leaves_no_other_precision() -> None:
    before = fp32_precisions()
    with ExitStack() as undo:
        set_tf32(True, undo, strict=True)
        assert fp32_precisions() != before
    assert fp32_precisions() == before
