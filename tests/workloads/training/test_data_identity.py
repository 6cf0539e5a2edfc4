"""Which data sets have the same identity."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from perfsweep.workloads.training.parts import Parts
from perfsweep.workloads.training.sources import DIGESTED_ROWS, data_digest


def digest(data: Any) -> str:
    return data_digest(Parts(nn.Linear(1, 1), data=data, loss=lambda *_: torch.ones(())))


def rows(count: int, **changed: float) -> list[torch.Tensor]:
    made = [torch.tensor([float(number), 1.0]) for number in range(count)]
    for place, value in changed.items():
        made[int(place.removeprefix("at_"))][0] = value
    return made


@pytest.mark.parametrize(
    "other", [rows(301), rows(300, at_0=9.0), rows(300, at_255=9.0)], ids=["number", "first", "last digested"]
)
def test_other_rows_are_other_data(other: list[torch.Tensor]) -> None:
    assert digest(other) != digest(rows(300))


def test_rows_beyond_the_first_256_are_not_read() -> None:
    assert DIGESTED_ROWS == 256
    assert digest(rows(300, at_256=9.0)) == digest(rows(300))


def test_values_count_and_not_their_type_or_the_sign_of_zero() -> None:
    ints = [(torch.tensor([number, 0]),) for number in range(3)]
    floats = [(torch.tensor([float(number), -0.0]),) for number in range(3)]
    assert digest(ints) == digest(floats)
    assert digest([torch.tensor([1 + 1j])]) != digest([torch.tensor([1 - 1j])])


def test_a_stream_has_no_number_of_rows() -> None:
    class Rows:
        def __iter__(self) -> Any:
            return iter(rows(257))

    class More:
        def __iter__(self) -> Any:
            return iter(rows(300))

    assert digest(Rows()) == digest(More())
    assert digest(Rows()) != digest(rows(257))
