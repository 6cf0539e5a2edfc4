"""What a batch holds: its tensors, and how many examples it has, whatever its shape."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_sequence
from torch.utils.data import DataLoader, TensorDataset

from perfsweep.workloads.script.batches import Rows, asked_of, rows_of, tensors_of

ONE, TWO = torch.zeros(3), torch.zeros(2, 2)


@dataclass(slots=True)
class Pair:
    image: Tensor
    target: Tensor


class Encoding:
    data = {"ids": TWO}


def graphs(count: int) -> Any:
    """A batch as libraries of graphs have it: a row for each node, further inside one for each edge."""
    store = SimpleNamespace(x=torch.zeros(40, 3), edge_index=torch.zeros(2, 90))
    return SimpleNamespace(num_graphs=count, store=store)


def test_tensors_are_found_in_what_libraries_give_as_batches() -> None:
    assert [*tensors_of([{"a": ONE}, (Encoding(), "text", 3)])] == [ONE, TWO]
    assert [*tensors_of(Pair(ONE, TWO))] == [ONE, TWO]
    assert len([*tensors_of(graphs(2))]) == 2


def test_an_object_that_holds_itself_is_looked_at_once_in_a_while() -> None:
    batch = SimpleNamespace(x=ONE)
    batch.again = batch
    assert ONE in [*tensors_of(batch)] and rows_of(batch) == 3


def test_models_and_classes_in_a_batch_are_no_data() -> None:
    assert [*tensors_of((nn.Linear(2, 2), nn.Linear, torch))] == []


@pytest.mark.parametrize(
    ("batch", "asked", "rows"),
    [
        ([torch.tensor(1.0), TWO, ONE], None, 2),
        ("text", None, 0),
        (SimpleNamespace(x=TWO, y=ONE), None, 2),
        (graphs(5), None, 5),
        (graphs(5), 8, 5),
        ([(torch.zeros(3, 9, 9), 1)] * 4, 4, 4),  # a list of examples, as detection has it
        (tuple(zip(*[(torch.zeros(3, 9, 9), 1)] * 4, strict=True)), 4, 4),
        (pack_sequence([torch.zeros(5), torch.zeros(2)]), 2, 2),
        ({"tokens": torch.zeros(57), "offsets": torch.zeros(8)}, 8, 8),
        ((torch.zeros(7, 4), torch.zeros(7)), 8, 7),  # the last batch of an epoch
        ((torch.zeros(32, 4), torch.zeros(32)), 1, 32),  # the data set gives whole batches
        (["a", "b", "c"], None, 3),
    ],
)
def test_examples_are_counted_by_what_a_batch_says_and_its_lengths(
    batch: Any, asked: int | None, rows: int
) -> None:
    assert rows_of(batch, asked) == rows


@pytest.mark.parametrize(("options", "asked"), [({"batch_size": 4}, 4), ({"batch_size": None}, None)])
def test_a_loader_says_how_many_examples_it_was_asked_for(options: dict[str, Any], asked: int | None) -> None:
    assert asked_of(iter(DataLoader(TensorDataset(torch.zeros(8, 2)), **options))) == asked


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
def test_rows_of_a_sparse_matrix_are_those_of_the_whole_one(layout: torch.layout) -> None:
    whole, sparse = Rows(), Rows()
    whole.add((torch.eye(6), ONE))
    sparse.add((torch.eye(6).to_sparse(layout=layout), ONE))
    assert sparse.digest == whole.digest
