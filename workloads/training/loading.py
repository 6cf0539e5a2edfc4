"""The ways in which batches of a data set reach the device.

All loader toggles share one plan of which rows form which batch. So an arm with workers, pinned memory or
prefetching trains on exactly the batches of the naive arm.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from perfsweep.workloads.errors import ConfigError, UnsupportedHere
from perfsweep.workloads.training.batches import Place, Share, cut, moved, rows_of, tensors

WHOLE = Share()
"""The share of a single rank: the whole batch."""


class EpochPlan(Sampler[list[int]]):
    """Which rows form which batch: another permutation for each epoch, which depends on the seed only.

    Every batch is full: in each epoch some rows are left out, which rows differs between epochs. A smaller
    last batch would cause another compilation for its shape, and its iteration would not be comparable.

    Attributes
    ----------
    start : iteration of the whole training at which the next pass over the plan begins, so that training can
        resume within an epoch; set it before ``iter()``
    share : what this rank takes of every batch
    """

    def __init__(self, rows: int, batch_size: int, seed: int, share: Share = WHOLE) -> None:
        if not 1 <= batch_size <= rows:
            raise ConfigError(
                f"workload.batch_size={batch_size} must be from 1 to {rows}, the rows of the data"
            )
        self.rows = rows
        self.batch_size = batch_size
        self.seed = seed
        self.share = share
        self.start = 0

    def __len__(self) -> int:
        """Batches of a whole epoch."""
        return self.rows // self.batch_size

    def __iter__(self) -> Iterator[list[int]]:
        epoch, first = divmod(self.start, len(self))
        order = np.random.default_rng([self.seed, epoch]).permutation(self.rows).tolist()
        for batch in range(first, len(self)):
            yield self.share.of_rows(order[batch * self.batch_size : (batch + 1) * self.batch_size])


class Resumable(Protocol):
    """A plan of batches whose next pass begins with batch `start` of the whole training."""

    start: int


def toggled(*, workers: int, pinned: bool) -> dict[str, Any]:
    """Return the keywords of a DataLoader at levels of the toggles `num_workers` and `pin_memory`."""
    return {
        "num_workers": workers,
        "pin_memory": pinned,
        # Otherwise every epoch starts its workers again, which can take longer than the epoch.
        "persistent_workers": workers > 0,
        # Forked workers share the data instead of pickling it, and need neither an importable main module nor
        # a server process, even if this process was itself forked from a server.
        "multiprocessing_context": "fork" if workers else None,
        # the loader draws a seed for each epoch, which must not change the global generator
        "generator": torch.Generator(),
    }


def data_loader(data: Dataset[Any], *, workers: int, pinned: bool, **how: Any) -> DataLoader[Any]:
    """PyTorch's loader at levels of the toggles `num_workers` and `pin_memory`; it gets `how` too."""
    return DataLoader(data, **{**toggled(workers=workers, pinned=pinned), **how})


class Epochs(Protocol):
    """Gives the batches of an epoch, any number of times."""

    def start(self, place: Place) -> tuple[Place, Iterator[Any]]:
        """Start an epoch after the batches of `place`; worker processes start here.

        Also returns the place where the batches begin: in the next epoch if this one is known to have ended.
        """
        ...


@dataclass(frozen=True)
class Planned:
    """Epochs of a loader that follows a plan."""

    loader: Iterable[Any]
    plan: Any  # Resumable, with a length

    def start(self, place: Place) -> tuple[Place, Iterator[Any]]:
        """Move the plan to the place, and start a pass over it."""
        self.plan.start = place.epoch * len(self.plan) + place.batches
        return Place(*divmod(self.plan.start, len(self.plan))), iter(self.loader)


def endless(epochs: Epochs, place: Place) -> Iterator[tuple[Any, Place]]:
    """Batches of epoch after epoch from `place` on, each with the place after it.

    Worker processes start at once, not with the first batch: if the caller has not used CUDA yet, they
    inherit none of it. They end when the iterator is dropped.
    """
    return _endless(epochs, *epochs.start(place))


def _endless(epochs: Epochs, place: Place, batches: Iterator[Any]) -> Iterator[tuple[Any, Place]]:
    while True:
        for batch in batches:
            place = Place(place.epoch, place.batches + 1)
            yield batch, place
        if not place.batches:
            raise ConfigError(
                f"the data gave no batch in epoch {place.epoch}; let data set or loader be such that iter()"
                " begins again, with rows for a batch"
            )
        place, batches = epochs.start(Place(place.epoch + 1))


def endless_batches(loader: DataLoader[Any], plan: Resumable) -> Iterator[Any]:
    """Batches of epoch after epoch, from ``plan.start`` on; see `endless`."""
    planned = Planned(loader, plan)
    return (batch for batch, _ in endless(planned, Place(*divmod(plan.start, len(planned.plan)))))


@dataclass
class Mover:
    """Copies a batch to the device, and counts how it was loaded and copied."""

    device: torch.device
    non_blocking: bool
    counts: Counter[str]

    def __call__(self, values: Any, loaded_by: int) -> Any:
        """The batch on the device. Without `non_blocking` the host waits for the copy and all before it."""
        self.counts["worker_batches"] += loaded_by != os.getpid()
        pinned = next(tensors(values)).is_pinned()
        self.counts["pinned_batches"] += pinned
        # Copies from pageable memory always wait.
        self.counts["unwaited_copies"] += self.non_blocking and pinned
        return moved(values, lambda tensor: tensor.to(self.device, non_blocking=self.non_blocking))


Pieces = Callable[[Any], Iterator[Any]]
"""Cuts the rows of a batch into pieces, which pass through the model one after the other."""


def whole(batch: Any) -> Iterator[Any]:
    """All in one piece."""
    yield batch


def pieces_of(size: int) -> Pieces:
    """Pieces of `size` rows; the last piece may be smaller."""

    def pieces(batch: Any) -> Iterator[Any]:
        for first in range(0, rows_of(batch), size):
            yield cut(batch, first, first + size)

    return pieces


T = TypeVar("T")


def ahead(
    batches: Iterator[T], device: torch.device, counts: Counter[str], tensors: Callable[[T], Iterable[Tensor]]
) -> Iterator[T]:
    """Fetch and copy each batch on a separate stream while the previous batch is computed.

    Parameters
    ----------
    batches : copies each batch to `device` on request
    counts : counts the witness ``prefetched_batches``
    tensors : gives all tensors of a batch
    """
    copies = torch.cuda.Stream(device)
    ready = _fetched_on(copies, batches)
    while True:
        computing = torch.cuda.current_stream(device)
        computing.wait_stream(copies)
        current = ready
        for tensor in tensors(current):
            # Without this the other stream could reuse the tensor's memory while it is read here.
            tensor.record_stream(computing)
        ready = _fetched_on(copies, batches)
        counts["prefetched_batches"] += 1
        yield current


def _fetched_on(stream: torch.cuda.Stream, batches: Iterator[T]) -> T:
    with torch.cuda.stream(stream):
        return next(batches)


MOST_BATCHES = 32
MOST_BYTES = 2**30


class KeptBatches(Generic[T]):
    """Batches of a loader that are kept unchanged.

    Parameters
    ----------
    tensors : gives all tensors of a batch
    counts : counts the witness ``kept_batches``: batches that were added, or given again
    """

    def __init__(self, tensors: Callable[[T], Iterable[Tensor]], counts: Counter[str]) -> None:
        self._tensors, self._counts = tensors, counts
        self._batches: list[tuple[T, int]] = []
        self._bytes = 0
        self.complete = False

    def __len__(self) -> int:
        return len(self._batches)

    def add(self, batch: T) -> None:
        """Keep one more batch.

        Raises
        ------
        UnsupportedHere
            The batch can be read only once.
        """
        if _is_read_once(batch):
            raise UnsupportedHere(
                "data=cached: the loader gives batches that can be read once only, such as a generator; let"
                " its collate_fn return tensors"
            )
        self._batches.append((batch, self._version(batch)))
        self._bytes += sum(tensor.nbytes for tensor in self._tensors(batch))
        self._counts["kept_batches"] += 1
        self.complete = len(self._batches) >= MOST_BATCHES or self._bytes >= MOST_BYTES

    def again(self, number: int) -> T:
        """Give the batch of this number again; after the last batch comes the first.

        Raises
        ------
        UnsupportedHere
            An earlier use has changed the batch.
        """
        batch, version = self._batches[number % len(self._batches)]
        if self._version(batch) != version:
            raise UnsupportedHere(
                "data=cached: the training changes its batches in place, so that they cannot be given again;"
                " let it work on copies"
            )
        self._counts["kept_batches"] += 1
        return batch

    def _version(self, batch: T) -> int:
        """How often the tensors of a batch were written to."""
        return sum(0 if tensor.is_inference() else tensor._version for tensor in self._tensors(batch))


def repeated(batches: Iterator[T], kept: KeptBatches[T]) -> Iterator[T]:
    """Give the first batches, then repeat them without end; the loader ends after the first pass."""
    for batch in batches:
        kept.add(batch)
        yield batch
        if kept.complete:
            break
    del batches  # the last reference: worker processes end with it
    number = 0
    while len(kept):
        yield kept.again(number)
        number += 1


def _is_read_once(batch: Any) -> bool:
    if isinstance(batch, Mapping):
        return any(map(_is_read_once, batch.values()))
    if isinstance(batch, (tuple, list)):
        return any(map(_is_read_once, batch))
    return hasattr(batch, "__next__")
