"""Batches as data sets and loaders make them: tensors alone, or in nested tuples, lists and mappings.

The rows of a batch are the first dimension of its first tensor that has one.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

from torch import Tensor
from torch.utils.data import default_collate

from perfsweep.workloads.errors import ConfigError

Collate = Callable[[list[Any]], Any]
"""Makes a batch from a list of rows."""


class Batch(NamedTuple):
    """A batch from a loader, still on the host.

    Attributes
    ----------
    values : the batch, or this rank's share of it
    loaded_by : id of the process that made it
    rows : rows of the whole batch, over all ranks
    """

    values: Any
    loaded_by: int
    rows: int


def tensors(batch: Any) -> Iterator[Tensor]:
    """Walk through all tensors of a batch."""
    if isinstance(batch, Tensor):
        yield batch
    elif isinstance(batch, (Mapping, tuple, list)):
        for part in batch.values() if isinstance(batch, Mapping) else batch:
            yield from tensors(part)


def mapped(change: Callable[[Any], Any], batch: Any) -> Any:
    """Build the same batch with `change` applied to every part that is no container of tensors."""
    if isinstance(batch, Mapping):
        parts = {name: mapped(change, part) for name, part in batch.items()}
        if type(batch) is dict or not isinstance(batch, MutableMapping):
            return parts
        same = copy.copy(batch)  # keeps the class of a tokenizer's batch: models use its attributes
        same.update(parts)
        return same
    if isinstance(batch, (tuple, list)) and next(tensors(batch), None) is not None:
        parts = [mapped(change, part) for part in batch]
        return type(batch)(*parts) if hasattr(batch, "_fields") else type(batch)(parts)
    return change(batch)


def moved(batch: Any, move: Callable[[Tensor], Tensor]) -> Any:
    """Build the same batch with its tensors moved, and everything else unchanged."""
    return mapped(lambda part: move(part) if isinstance(part, Tensor) else part, batch)


def rows_of(batch: Any) -> int:
    """Count the rows of a batch.

    Raises
    ------
    ConfigError
        No tensor of the batch has rows.
    """
    for tensor in tensors(batch):
        if tensor.dim():
            return len(tensor)
    raise ConfigError(
        f"a batch is a {type(batch).__name__} without tensors that have rows; let build() name a"
        " Parts(collate=...), or a loader, that returns a tensor, or a tuple or mapping of tensors"
    )


def cut(batch: Any, first: int, end: int) -> Any:
    """Take rows `first` to `end` of a batch; parts without a row for each row of the batch are kept whole."""
    rows = rows_of(batch)

    def of_part(part: Any) -> Any:
        has_rows = part.dim() > 0 if isinstance(part, Tensor) else isinstance(part, (list, tuple))
        return part[first:end] if has_rows and len(part) == rows else part

    return mapped(of_part, batch)


def arguments(batch: Any) -> tuple[Any, ...]:
    """Spread a tuple or list over the arguments of a function; anything else is one argument."""
    return tuple(batch) if isinstance(batch, (tuple, list)) else (batch,)


def collate(rows: list[Any]) -> Any:
    """Stack rows as PyTorch does; rows that are tuples give a tuple, mappings a mapping.

    Raises
    ------
    ConfigError
        The rows do not stack to tensors.
    """
    try:
        stacked = default_collate(rows)
    except TypeError as error:
        raise ConfigError(_unstackable(rows)) from error
    if next(tensors(stacked), None) is None:
        raise ConfigError(_unstackable(rows))
    return tuple(stacked) if type(stacked) is list else stacked


def _unstackable(rows: list[Any]) -> str:
    return (
        f"a row of the data is a {type(rows[0]).__name__} that does not stack to tensors; let the data set"
        " return a tensor, a tuple or mapping of tensors and numbers, or let build() name Parts(collate=...)"
    )


@dataclass(frozen=True)
class Share:
    """The part of every batch that one of several ranks takes: consecutive rows."""

    rank: int = 0
    world: int = 1

    def bounds(self, rows: int) -> tuple[int, int]:
        """Return the first row of this rank's share of `rows`, and the row after its last.

        Raises
        ------
        ConfigError
            A rank would get no row.
        """
        if rows < self.world:
            raise ConfigError(
                f"toggles.ddp={self.world} shares a batch of {rows} rows, and each rank needs one; use a"
                " larger workload.batch_size, or fewer ranks"
            )
        return rows * self.rank // self.world, rows * (self.rank + 1) // self.world

    def of_rows(self, rows: list[Any]) -> list[Any]:
        """Take this rank's share of the rows of a batch that is not loaded yet."""
        if self.world == 1:
            return rows
        first, end = self.bounds(len(rows))
        return rows[first:end]

    def of_batch(self, batch: Any) -> Any:
        """Take this rank's share of a batch that every rank has loaded whole."""
        return batch if self.world == 1 else cut(batch, *self.bounds(rows_of(batch)))


@dataclass(frozen=True)
class Stamped:
    """Makes a batch, and notes the process that did: the only proof that a worker was used.

    `rows` is the number of rows of the whole batch, if `collate` gets only a share of it.
    """

    collate: Collate
    rows: int = 0

    def __call__(self, rows: Any) -> Batch:
        """Make a batch from `rows`."""
        values = self.collate(rows)
        return Batch(values, os.getpid(), self.rows or rows_of(values))


def grouped(rows: Iterable[Any], size: int) -> Iterator[list[Any]]:
    """Group rows into batches of `size`; the last batch may be smaller."""
    iterator = iter(rows)
    while batch := list(islice(iterator, size)):
        yield batch


def full_batches(rows: Iterable[Any], size: int) -> Iterator[list[Any]]:
    """Group rows into batches of `size`; rows that fill no batch are left out."""
    return (batch for batch in grouped(rows, size) if len(batch) == size)


class Place(NamedTuple):
    """Where a training is in its data: the epoch, and its batches that have been trained on."""

    epoch: int = 0
    batches: int = 0


class Portion(NamedTuple):
    """A batch with its share of an iteration.

    Attributes
    ----------
    batch : values on the device, after `Mover`; a `Batch` before
    share : this rank's rows of the batch divided by all rows of the iteration, over all batches and ranks
    rows : rows of the whole batch, over all ranks
    last : whether the iteration's update follows
    place : the place in the data after this batch
    """

    batch: Any
    share: float
    rows: int
    last: bool
    place: Place


def portions(placed: Iterator[tuple[Batch, Place]], accumulate: int) -> Iterator[Portion]:
    """Group `accumulate` batches to each iteration; all of them are loaded before the first is used.

    The share of each depends on the rows of all: a mean over batches would give rows of a smaller batch a
    larger weight.
    """
    while window := list(islice(placed, accumulate)):
        rows = sum(batch.rows for batch, _ in window)
        for number, (batch, place) in enumerate(window, 1):
            yield Portion(batch, rows_of(batch.values) / rows, batch.rows, number == accumulate, place)
