"""The ways in which batches of a data set reach the device.

All loader toggles share one plan of which rows form which batch, so that an arm with workers, pinned memory
or prefetching trains on exactly the batches of the naive one.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler, default_collate

from workloads.errors import ConfigError

Tensors = tuple[Tensor, ...]
"""What one batch consists of, [rows, ...] each, on the device."""


class Batch(NamedTuple):
    """What the loader hands out, still on the host."""

    tensors: Tensors
    loaded_by: int  # id of the process that put the batch together


class EpochPlan(Sampler[list[int]]):
    """Which rows form which batch: a permutation of its own for each epoch, fixed by the seed alone.

    Every batch is full: rows that fill no batch sit out one epoch, others the next. A ragged last batch would
    have compiled code built once more for its shape, and its iterations would not be comparable with the
    rest.

    Attributes
    ----------
    start : iteration of the whole training at which the next pass over the plan begins, so that training can
        resume within an epoch; set it before ``iter()``
    """

    def __init__(self, rows: int, batch_size: int, seed: int) -> None:
        if not 1 <= batch_size <= rows:
            raise ConfigError(
                f"workload.batch_size={batch_size} must be from 1 to {rows}, the rows of the data"
            )
        self.rows = rows
        self.batch_size = batch_size
        self.seed = seed
        self.start = 0

    def __len__(self) -> int:
        """Batches of a whole epoch."""
        return self.rows // self.batch_size

    def __iter__(self) -> Iterator[list[int]]:
        epoch, first = divmod(self.start, len(self))
        order = np.random.default_rng([self.seed, epoch]).permutation(self.rows).tolist()
        for batch in range(first, len(self)):
            yield order[batch * self.batch_size : (batch + 1) * self.batch_size]


def collate(rows: list[Any]) -> Batch:
    """Stack rows, and note who did: the only proof that a worker worked.

    Raises
    ------
    ConfigError
        A row is neither a tensor nor a tuple of tensors and numbers.
    """
    stacked = default_collate(rows)
    tensors = (stacked,) if isinstance(stacked, Tensor) else stacked
    if not isinstance(tensors, (tuple, list)) or not all(isinstance(tensor, Tensor) for tensor in tensors):
        raise ConfigError(
            f"a row of the data is a {type(rows[0]).__name__} that does not stack to tensors; "
            "let the data set return a tensor, or a tuple of tensors and numbers"
        )
    return Batch(tuple(tensors), os.getpid())


class Resumable(Protocol):
    """A plan of batches whose next pass begins with batch `start` of the whole training."""

    start: int


def data_loader(data: Dataset[Any], *, workers: int, pinned: bool, **how: Any) -> DataLoader[Any]:
    """PyTorch's loader at levels of the toggles `num_workers` and `pin_memory`; `how` goes on to it."""
    return DataLoader(
        data,
        num_workers=workers,
        pin_memory=pinned,
        # Otherwise every epoch starts its workers anew, which takes longer than the epoch.
        persistent_workers=workers > 0,
        # Forked workers share the data instead of pickling it, and need neither an importable main module nor
        # another server process. That holds too where this process was itself forked from a server.
        multiprocessing_context="fork" if workers else None,
        generator=torch.Generator(),  # the loader draws a seed for each epoch: not from the global generator
        **how,
    )


def endless_batches(loader: DataLoader[Any], plan: Resumable) -> Iterator[Any]:
    """Batches of epoch after epoch, from ``plan.start`` on.

    Worker processes start here and now, not with the first batch: a caller that has not touched CUDA yet can
    be sure that they inherit none of it. They end when the iterator is dropped.
    """
    return _epochs(loader, plan, iter(loader), plan.start)


def _epochs(loader: DataLoader[Any], plan: Resumable, epoch: Iterator[Any], number: int) -> Iterator[Any]:
    while True:
        for batch in epoch:
            number += 1
            yield batch
        plan.start = number
        epoch = iter(loader)


def first_rows(data: Dataset[Any], count: int, device: torch.device) -> Tensors:
    """The first `count` rows of `data` as one batch on `device`."""
    return tuple(tensor.to(device) for tensor in collate([data[row] for row in range(count)]).tensors)


@dataclass
class Mover:
    """Copies a batch to the device and counts how it came and went."""

    device: torch.device
    non_blocking: bool
    counts: Counter[str]

    def __call__(self, batch: Batch) -> Tensors:
        """The batch on the device. Without `non_blocking` the host waits for the copy and all before it."""
        self.counts["worker_batches"] += batch.loaded_by != os.getpid()
        pinned = batch.tensors[0].is_pinned()
        self.counts["pinned_batches"] += pinned
        # Copies from pageable memory wait whatever they are asked for.
        self.counts["unwaited_copies"] += self.non_blocking and pinned
        return tuple(tensor.to(self.device, non_blocking=self.non_blocking) for tensor in batch.tensors)


Pieces = Callable[[Tensors], Iterator[Tensors]]
"""Cuts the rows of one iteration into the pieces that pass through the model one after the other."""


def whole(batch: Tensors) -> Iterator[Tensors]:
    """All in one piece."""
    yield batch


def pieces_of(size: int) -> Pieces:
    """Pieces of `size` rows; the last one may be smaller."""

    def pieces(batch: Tensors) -> Iterator[Tensors]:
        return zip(*(tensor.split(size) for tensor in batch), strict=True)

    return pieces
