"""What `amp` and `tf32` set, and what they leave alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
import torch

from perfsweep.workloads.errors import UnsupportedHere
from perfsweep.workloads.training.precision import (
    autocast,
    autocast_of,
    fp32_precisions,
    set_tf32,
    tf32_is_on,
)

CPU = torch.device("cpu")


@pytest.mark.parametrize("own", [False, True], ids=["level", "own"])
@pytest.mark.parametrize(("level", "scaled"), [("off", False), ("bf16", False), ("fp16", True)])
def test_a_training_that_states_its_precision_is_scaled_as_by_the_level_and_never_cast_twice(
    level: str, scaled: bool, own: bool
) -> None:
    one, made = torch.ones(2, 2), []
    given = ("off", lambda: made.append(level) or autocast(level, CPU)) if own else (level, None)
    context, scaler = autocast_of(*given, CPU)
    made.clear()
    for _ in range(2):
        with context:
            found = (one @ one).dtype
    assert found == {"off": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[level]
    assert (scaler.is_enabled(), made) == (scaled, [level] * 2 if own else [])
    if own and level != "off":
        said = rf"^toggles\.amp={level} is refused: .*Parts\(autocast=\.\.\.\), .* or leave amp off$"
        with pytest.raises(UnsupportedHere, match=said):
            autocast_of(level, given[1], CPU)


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
