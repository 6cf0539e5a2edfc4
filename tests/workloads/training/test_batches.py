"""What is done to the parts of a batch, whatever holds them together."""

from __future__ import annotations

from collections import UserDict
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.training import batches


class Pair(NamedTuple):
    x: Tensor
    name: str


class Encoding(UserDict[str, Any]):
    """As tokenizers give them, with attributes that models ask for."""

    @property
    def n_rows(self) -> int:
        return len(self["ids"])


ROWS, SCALE = torch.arange(12.0).reshape(6, 2), torch.tensor(3.0)


@pytest.mark.parametrize(
    "batch",
    [(ROWS, "text", 2), [ROWS, {"y": ROWS}], Pair(ROWS, "a"), {"x": ROWS, "n": 6}, Encoding(ids=ROWS), ROWS],
    ids=lambda batch: type(batch).__name__,
)
def test_tensors_move_and_everything_else_stays(batch: Any) -> None:
    moved = batches.moved(batch, lambda tensor: tensor + 1)
    assert type(moved) is type(batch)
    assert all(torch.equal(found, ROWS + 1) for found in batches.tensors(moved))
    assert len(list(batches.tensors(moved))) == len(list(batches.tensors(batch))) > 0
    assert batches.mapped(lambda part: part, batch) is not batch or isinstance(batch, Tensor)
    if isinstance(moved, Encoding):
        assert moved.n_rows == 6 and torch.equal(batch["ids"], ROWS)
    if isinstance(moved, Pair):
        assert moved.name == "a"


def test_a_cut_takes_rows_of_what_has_as_many_and_the_whole_of_the_rest() -> None:
    labels, other = list("abcdef"), [ROWS[:2]]
    found = batches.cut({"x": ROWS, "labels": labels, "scale": SCALE, "other": ROWS[:2], "list": other}, 2, 4)
    assert torch.equal(found["x"], ROWS[2:4]) and found["labels"] == ["c", "d"]
    assert found["scale"] is SCALE and len(found["other"]) == 2 and len(found["list"]) == 1


@pytest.mark.parametrize("batch", ["text", (1, 2), {"scale": SCALE}])
def test_a_batch_without_rows_is_refused_with_what_to_do(batch: Any) -> None:
    words = f"a batch is a {type(batch).__name__} without tensors that have rows; let build"
    with pytest.raises(ConfigError, match=words):
        batches.rows_of(batch)
