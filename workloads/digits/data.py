"""Scikit-learn's digits and the ways in which batches of them reach the device.

All loader toggles share one plan of which rows form which batch, so that an arm with workers, pinned memory or prefetching
trains on exactly the batches of the naive one.
"""

from __future__ import annotations

import gzip
import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler, default_collate

from workloads.errors import ConfigError

# N examples of a batch, P = 64 pixels of an image.
ROWS = 1797
PIXELS = 64
CLASSES = 10
BRIGHTEST = 16

Examples = tuple[Tensor, Tensor]
"""Images [N, P] float32 in [0, 1] and labels [N] int64, on the device."""


class Batch(NamedTuple):
    """What the loader hands out, still on the host."""

    images: Tensor  # [N, P] float32 in [0, 1]
    labels: Tensor  # [N] int64
    loaded_by: int  # id of the process that put the batch together


@dataclass(frozen=True)
class RawDigits:
    """Raw examples: images [rows, P] uint8 in 0..16, labels [rows] uint8."""

    images: np.ndarray
    labels: np.ndarray

    def digest(self) -> str:
        """SHA-256 of pixels and labels."""
        return hashlib.sha256(self.images.tobytes() + self.labels.tobytes()).hexdigest()

    def split(self, train_rows: int) -> tuple[RawDigits, RawDigits]:
        """Training and held-out rows: the same split for every seed, so that accuracies can be compared."""
        order = np.random.default_rng(0).permutation(len(self.labels))
        train, held_out = order[:train_rows], order[train_rows:]
        return RawDigits(self.images[train], self.labels[train]), RawDigits(self.images[held_out], self.labels[held_out])


def load_digits() -> RawDigits:
    """The 1797 digits that scikit-learn ships.

    The file is read directly, because importing scikit-learn for it costs a second of CPU time in every trial.

    Raises
    ------
    ConfigError
        Scikit-learn is missing, or keeps its digits elsewhere.
    """
    package = find_spec("sklearn")
    folders = package.submodule_search_locations if package else None
    if not folders:
        raise ConfigError("workload=digits needs the digits that come with scikit-learn: install scikit-learn")
    file = Path(folders[0], "datasets/data/digits.csv.gz")
    if not file.is_file():
        raise ConfigError(
            f"workload=digits needs the digits of scikit-learn, and {file} does not exist: install scikit-learn 1.3 or newer"
        )
    with gzip.open(file, "rt") as text:
        table = np.loadtxt(text, delimiter=",", dtype=np.uint8)
    return RawDigits(images=table[:, :PIXELS], labels=table[:, PIXELS])


class DigitRows(Dataset[tuple[Tensor, int]]):
    """One example at a time, decoded when it is asked for: the work that loader processes can take over."""

    def __init__(self, digits: RawDigits) -> None:
        self.digits = digits

    def __len__(self) -> int:
        return len(self.digits.labels)

    def __getitem__(self, row: int) -> tuple[Tensor, int]:
        image = torch.from_numpy(self.digits.images[row]).float() / BRIGHTEST
        return image, int(self.digits.labels[row])


class EpochPlan(Sampler[list[int]]):
    """Which rows form which batch: a permutation of its own for each epoch, fixed by the seed alone.

    Every batch is full: rows that fill no batch sit out one epoch, others the next. A ragged last batch would have compiled
    code built once more for its shape, and its iterations would not be comparable with the rest.

    Attributes
    ----------
    start : iteration of the whole training at which the next pass over the plan begins, so that training can resume
        within an epoch; set it before ``iter()``
    """

    def __init__(self, rows: int, batch_size: int, seed: int) -> None:
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


def collate(rows: list[tuple[Tensor, int]]) -> Batch:
    """Stack examples, and note who did: the only proof that a worker worked."""
    images, labels = default_collate(rows)
    return Batch(images, labels, os.getpid())


def load_batches(digits: RawDigits, plan: EpochPlan, *, start: int, workers: int, pinned: bool) -> Iterator[Batch]:
    """Batches without end, from iteration `start` of the training on.

    Worker processes start here and now, not with the first batch: a caller that has not touched CUDA yet can be sure that
    they inherit none of it. They end when the iterator is dropped.
    """
    loader: DataLoader[Any] = DataLoader(
        DigitRows(digits),
        batch_sampler=plan,
        collate_fn=collate,
        num_workers=workers,
        pin_memory=pinned,
        # Otherwise every epoch starts its workers anew, which takes longer than the epoch.
        persistent_workers=workers > 0,
        # Forked workers share the data instead of pickling it, and need neither an importable main module nor another
        # server process. That holds too where this process was itself forked from a server.
        multiprocessing_context="fork" if workers else None,
        generator=torch.Generator(),  # the loader draws a seed for each epoch: not from the global generator
    )
    plan.start = start
    return _epochs(loader, plan, iter(loader), start)


def _epochs(loader: DataLoader[Any], plan: EpochPlan, epoch: Iterator[Batch], iteration: int) -> Iterator[Batch]:
    while True:
        for batch in epoch:
            iteration += 1
            yield batch
        plan.start = iteration
        epoch = iter(loader)


@dataclass
class Mover:
    """Copies a batch to the device and counts how it came and went."""

    device: torch.device
    non_blocking: bool
    counts: Counter[str]

    def __call__(self, batch: Batch) -> Examples:
        """The batch on the device. Without `non_blocking` the host waits until the copy, and all work before it, is done."""
        self.counts["worker_batches"] += batch.loaded_by != os.getpid()
        pinned = batch.images.is_pinned()
        self.counts["pinned_batches"] += pinned
        # Copies from pageable memory wait whatever they are asked for.
        self.counts["unwaited_copies"] += self.non_blocking and pinned
        images = batch.images.to(self.device, non_blocking=self.non_blocking)
        return images, batch.labels.to(self.device, non_blocking=self.non_blocking)


def move_in_line(batches: Iterator[Batch], move: Mover) -> Iterator[Examples]:
    """Each batch is copied when it is needed."""
    return map(move, batches)


def move_ahead(batches: Iterator[Batch], move: Mover) -> Iterator[Examples]:
    """Each batch is copied on a stream of its own while the one before it is computed."""
    copies = torch.cuda.Stream(move.device)
    ready: Examples | None = None
    while True:
        computing = torch.cuda.current_stream(move.device)
        if ready is None:
            ready = _on_stream(copies, move, batches)
        computing.wait_stream(copies)
        current = ready
        for tensor in current:
            # It was allocated on the other stream: without this its memory could be handed out there while in use here.
            tensor.record_stream(computing)
        ready = _on_stream(copies, move, batches)
        move.counts["prefetched_batches"] += 1
        yield current


def _on_stream(stream: torch.cuda.Stream, move: Mover, batches: Iterator[Batch]) -> Examples:
    with torch.cuda.stream(stream):
        return move(next(batches))


Pieces = Callable[[Examples], Iterator[Examples]]
"""Cuts the examples of one iteration into the pieces that pass through the network one after the other."""


def whole(batch: Examples) -> Iterator[Examples]:
    """All in one piece."""
    yield batch


def pieces_of(size: int) -> Pieces:
    """Pieces of `size` rows; the last one may be smaller."""

    def pieces(batch: Examples) -> Iterator[Examples]:
        images, labels = batch
        return zip(images.split(size), labels.split(size), strict=True)

    return pieces
