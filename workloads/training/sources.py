"""Sources of a training's batches: rows by number, a stream of rows, or a loader of the user's own."""

from __future__ import annotations

import hashlib
import os
import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any, cast

import numpy as np
import torch
from torch.utils.data import IterableDataset, Sampler, get_worker_info

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.training.batches import (
    Batch,
    Collate,
    Place,
    Share,
    Stamped,
    collate,
    full_batches,
    rows_of,
    tensors,
)
from perfsweep.workloads.training.loading import EpochPlan, Epochs, Planned, data_loader, toggled
from perfsweep.workloads.training.parts import Parts


def source_of(
    parts: Parts, batch_size: int, seed: int, share: Share, *, workers: int, pinned: bool
) -> Epochs:
    """Choose the source of batches, which loads them at the levels of the toggles."""
    how = {"workers": workers, "pinned": pinned}
    if parts.loader is not None:
        return OwnLoader(parts.loader, toggled(**how), seed, share)
    stamped, data = Stamped(parts.collate or collate, batch_size), cast(Any, parts.data)
    if is_stream(data) and parts.sampler is not None:
        raise ConfigError("Parts(sampler=...) names rows by number, and the data are a stream; leave it out")
    if is_stream(data):
        return Stream(data, batch_size, share, stamped, how)
    plan = (
        EpochPlan(length_of(data, "the data set"), batch_size, seed, share)
        if parts.sampler is None
        else SamplerPlan(parts.sampler, batch_size, seed, share)
    )
    return Planned(data_loader(data, batch_sampler=plan, collate_fn=stamped, **how), plan)


def is_stream(data: Any) -> bool:
    """Whether rows of `data` can only be read one after the other."""
    numbered = hasattr(data, "__getitem__") and hasattr(data, "__len__")
    return isinstance(data, IterableDataset) or (hasattr(data, "__iter__") and not numbered)


def rows_in(data: Any) -> Iterable[Any]:
    """Walk through the rows of a data set in their own order."""
    return data if is_stream(data) else (data[row] for row in range(length_of(data, "the data set")))


def length_of(sized: Any, name: str) -> int:
    """The length of a data set, sampler or loader.

    Raises
    ------
    ConfigError
        It has no length.
    """
    try:
        return len(sized)
    except TypeError as error:
        raise ConfigError(
            f"{name} has no length: give it __len__, or make it iterable, or let build() name a"
            " Parts(loader=...)"
        ) from error


class SamplerPlan(Sampler[list[int]]):
    """Full batches of the rows that the user's sampler names; otherwise the same as `EpochPlan`.

    Raises
    ------
    ConfigError
        The sampler has no length, or too few rows for a batch.
    """

    def __init__(self, sampler: Iterable[int], batch_size: int, seed: int, share: Share) -> None:
        self.sampler, self.batch_size, self.seed, self.share = sampler, batch_size, seed, share
        self.start = 0
        rows = length_of(sampler, "Parts(sampler=...)")
        if not 1 <= batch_size <= rows:
            raise ConfigError(
                f"workload.batch_size={batch_size} must be from 1 to {rows}, the rows that"
                " Parts(sampler=...) names"
            )
        self._length = rows // batch_size

    def __len__(self) -> int:
        """Batches of a whole epoch."""
        return self._length

    def __iter__(self) -> Iterator[list[int]]:
        epoch, first = divmod(self.start, len(self))
        begin_epoch(self.sampler, self.seed, epoch)
        for batch in islice(full_batches(self.sampler, self.batch_size), first, None):
            yield self.share.of_rows(batch)


def begin_epoch(source: Any, seed: int, epoch: int) -> None:
    """Begin an epoch of a sampler, loader or data set; its order depends only on the seed and its number.

    Otherwise the order would depend on earlier draws: a training that resumes, or an arm whose loader draws
    once more, would have other batches.
    """
    if hasattr(source, "set_epoch"):
        source.set_epoch(epoch)
    if isinstance(source, Sampler) and hasattr(source, "generator"):
        own = int(np.random.default_rng([seed, epoch]).integers(2**63))
        source.generator = torch.Generator().manual_seed(own)  # type: ignore[attr-defined]


class Stream:
    """Epochs of an iterable data set, in full batches.

    Each of n workers reads the whole stream and makes every n-th batch, so that the batches stay the same. A
    stream that divides its rows among workers needs a loader of the user's own.
    """

    def __init__(
        self, data: Any, batch_size: int, share: Share, stamped: Stamped, how: dict[str, Any]
    ) -> None:
        self._data = data
        # Persistent workers would not get the number of the epoch.
        living = {"persistent_workers": False} if hasattr(data, "set_epoch") else {}
        turns = _Turns(data, batch_size, share)
        self._loader = data_loader(turns, batch_size=None, collate_fn=stamped, **how, **living)

    def start(self, place: Place) -> tuple[Place, Iterator[Any]]:
        """Start the stream, and skip the batches before `place`."""
        begin_epoch(self._data, 0, place.epoch)
        return place, islice(iter(self._loader), place.batches, None)


@dataclass
class _Turns(IterableDataset[Any]):
    """Rows of each batch of a stream; with workers each worker gives every n-th batch."""

    data: Iterable[Any]
    batch_size: int
    share: Share

    def __iter__(self) -> Iterator[list[Any]]:
        worker = get_worker_info()
        mine, workers = (worker.id, worker.num_workers) if worker else (0, 1)
        for rows in islice(full_batches(self.data, self.batch_size), mine, None, workers):
            yield self.share.of_rows(rows)


class OwnLoader:
    """Epochs of the user's own loader, with its batches unchanged.

    Every rank loads the whole batch and takes its share.
    """

    def __init__(
        self, make: Callable[..., Iterable[Any]], how: dict[str, Any], seed: int, share: Share
    ) -> None:
        self._loader = make(**how)
        self._seed, self._share = seed, share
        collates = getattr(self._loader, "collate_fn", None)
        if collates is not None and not isinstance(collates, Stamped):
            self._loader.collate_fn = Stamped(collates)  # type: ignore[attr-defined]

    def start(self, place: Place) -> tuple[Place, Iterator[Batch]]:
        """Start the loader, and skip the batches before `place`."""
        loader = self._loader
        plan = getattr(loader, "batch_sampler", None)
        samplers = [getattr(loader, "sampler", None), plan, getattr(plan, "sampler", None)]
        for source in (loader, getattr(loader, "dataset", None), *samplers):
            begin_epoch(source, self._seed, place.epoch)
        return place, map(self._own, islice(iter(loader), place.batches, None))

    def _own(self, loaded: Any) -> Batch:
        whole = loaded if isinstance(loaded, Batch) else Batch(loaded, os.getpid(), rows_of(loaded))
        return whole._replace(values=self._share.of_batch(whole.values))


def first_batches(parts: Parts, batch_size: int, seed: int) -> Iterator[Any]:
    """Load batches on the host and in this process, the same for every arm: rows in their own order.

    With the user's own loader, its first batches.
    """
    if parts.loader is not None:
        own = OwnLoader(parts.loader, toggled(workers=0, pinned=False), seed, Share())
        yield from (batch.values for batch in own.start(Place())[1])
        return
    put_together: Collate = parts.collate or collate
    yield from map(put_together, full_batches(rows_in(parts.data), batch_size))


@contextmanager
def fixed_draws(seed: int) -> Iterator[None]:
    """Within the context random draws depend only on `seed`; draws outside do not change."""
    states = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng(devices=()):
            random.seed(seed)
            np.random.seed(seed % 2**32)
            torch.manual_seed(seed)
            yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])


DIGESTED_ROWS = 256
"""Rows that the digest reads: all rows may not fit into memory."""


def data_digest(parts: Parts) -> str:
    """SHA-256 of the first rows' values, whatever type a level stores them in, and of the number of rows.

    Streams and loaders have no number of rows; the first batches of a loader are read.
    """
    sha = hashlib.sha256()
    if parts.loader is None and not is_stream(parts.data):
        sha.update(str(length_of(parts.data, "the data set")).encode())
    with fixed_draws(0):
        for batch in _first_rows(parts):
            for tensor in tensors(batch):
                wide = tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)
                sha.update((wide + 0.0).numpy().tobytes())  # + 0.0 turns -0.0 into 0.0
    return sha.hexdigest()


def _first_rows(parts: Parts) -> Iterator[Any]:
    rows = 0
    for batch in first_batches(parts, 1, 0):
        yield batch
        rows += rows_of(batch)
        if rows >= DIGESTED_ROWS:
            return
