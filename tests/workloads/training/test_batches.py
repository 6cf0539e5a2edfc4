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
    with pytest.raises(ConfigError) as refusal:
        batches.rows_of(batch)
    assert str(refusal.value) == (
        f"a batch is a {type(batch).__name__} without tensors that have rows; let build() name a"
        " Parts(collate=...), or a loader, that returns a tensor, or a tuple or mapping of tensors"
    )


@pytest.mark.parametrize("row", [object(), "a", ("a",)], ids=lambda row: type(row).__name__)
def test_rows_that_do_not_stack_are_refused_with_what_to_do(row: Any) -> None:
    with pytest.raises(ConfigError) as refusal:
        batches.collate([row, row])
    assert str(refusal.value) == (
        f"a row of the data is a {type(row).__name__} that does not stack to tensors; let the data set return"
        " a tensor, a tuple or mapping of tensors and numbers, or let build() name Parts(collate=...)"
    )


def test_rows_stack_to_what_they_are_and_a_batch_is_spread_over_arguments_where_it_is_a_tuple() -> None:
    pair, mapping, alone = (batches.collate([row] * 2) for row in ((1, 2.0), {"x": 1}, SCALE))
    assert [type(one) for one in (pair, mapping, alone)] == [tuple, dict, Tensor]
    assert len(batches.arguments(pair)) == 2 and batches.arguments(mapping) == (mapping,)
    assert batches.arguments(alone)[0] is alone and batches.rows_of((SCALE, ROWS)) == 6


def test_the_shares_of_an_updates_batches_follow_the_rows_of_all_of_them() -> None:
    def batch(own: int, rows: int) -> batches.Batch:
        return batches.Batch(torch.zeros(own), 0, rows)

    places = [batches.Place(0, number) for number in (1, 2, 3)]
    placed = zip([batch(2, 4), batch(1, 2), batch(3, 6)], places, strict=True)
    found = [one[1:] for one in batches.portions(iter(placed), accumulate=2)]
    assert found == [(2 / 6, 4, False, places[0]), (1 / 6, 2, True, places[1]), (3 / 6, 6, False, places[2])]
