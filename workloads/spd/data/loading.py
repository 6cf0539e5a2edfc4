"""The ways in which batches reach the device. All of them follow one plan of which rows form which batch.

Dimensions: B rows of a batch, S tokens or f features of a row.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset, Sampler, get_worker_info

from perfsweep.workloads.spd.data.tokens import Rows
from perfsweep.workloads.training import loading
from perfsweep.workloads.training.loading import data_loader, endless_batches


class Loaded(NamedTuple):
    """A batch [B, S] int64 or [B, f] float32, who fetched it, and in how many pieces from host memory."""

    values: Tensor
    loaded_by: int
    fetches: int


class Plan(Sampler[list[int]]):
    """Rows of each batch: a permutation per epoch, by the data seed alone; the remainder dropped unless kept.

    Attributes
    ----------
    start : batch of the whole training with which the next ``iter()`` begins
    """

    def __init__(self, rows: int, batch: int, seed: int, drop_last: bool = True) -> None:
        self.rows, self.batch, self.seed, self.drop_last = rows, batch, seed, drop_last
        self.start = 0

    def __len__(self) -> int:
        """Batches of an epoch."""
        return self.rows // self.batch if self.drop_last else -(-self.rows // self.batch)

    def order(self, epoch: int) -> Tensor:
        """Permutation of all rows in an epoch [n]."""
        return torch.randperm(self.rows, generator=torch.Generator().manual_seed(self.seed * 100_003 + epoch))

    def __iter__(self) -> Iterator[list[int]]:
        epoch, first = divmod(self.start, len(self))
        order = self.order(epoch).tolist()
        for number in range(first, len(self)):
            yield order[number * self.batch : (number + 1) * self.batch]

    def without_end(self) -> Iterator[np.ndarray]:
        """Rows of each batch from `start` on [B], epoch after epoch."""
        number = self.start
        while True:
            epoch, first = divmod(number, len(self))
            order = self.order(epoch).numpy()
            for batch in range(first, len(self)):
                yield order[batch * self.batch : (batch + 1) * self.batch]
            number = (epoch + 1) * len(self)


class RowByRow(Dataset[Any]):
    """Tokens one row at a time, as a hub's data set hands them out; toys make a whole batch of vectors."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, row: int) -> Tensor:
        return torch.from_numpy(self.rows.values[row].astype(np.int64))


class VectorBatches(RowByRow):
    """A batch of vectors in one fetch."""

    def __getitems__(self, rows: list[int]) -> Tensor:
        return torch.from_numpy(self.rows.values[rows])


class StreamedBatches(IterableDataset[Any]):
    """Batches as a stream. Sharded, a worker yields its own alone: else each would repeat all."""

    def __init__(self, rows: Rows, plan: Plan, sharded: bool) -> None:
        self.dataset = VectorBatches(rows) if rows.vectors else RowByRow(rows)
        self.plan, self.sharded = plan, sharded

    def __iter__(self) -> Iterator[Loaded]:
        worker = get_worker_info()
        mine, workers = (worker.id, worker.num_workers) if worker and self.sharded else (0, 1)
        for number, rows in enumerate(
            self.plan.without_end()
        ):  # a worker that lives on would begin its copy of the plan again
            if number % workers == mine:
                yield collate(fetch(self.dataset, rows.tolist()))


def fetch(dataset: RowByRow, rows: list[int]) -> Any:
    """Rows of a data set, the way a loader asks for them."""
    return (
        dataset.__getitems__(rows) if isinstance(dataset, VectorBatches) else [dataset[row] for row in rows]
    )


def collate(rows: Any) -> Loaded:
    """Put rows together, and note who did: the only proof that a worker worked."""
    if isinstance(rows, Tensor):
        return Loaded(rows, os.getpid(), 1)
    return Loaded(torch.stack(rows), os.getpid(), len(rows))


def on_host(rows: Rows, values: np.ndarray) -> Tensor:
    """Some rows as a network reads them: vectors float32, token ids int64."""
    return torch.from_numpy(np.array(values) if rows.vectors else values.astype(np.int64))


def by_data_loader(
    rows: Rows, plan: Plan, workers: int, pinned: bool, stream: bool, sharded: bool
) -> Iterator[Loaded]:
    """Batches from PyTorch's loader, without end. Workers start here and end with the iterator."""
    common: dict[str, Any] = {"workers": workers, "pinned": pinned}
    if stream:
        loader = data_loader(StreamedBatches(rows, plan, sharded), batch_size=None, **common)
    else:
        dataset = VectorBatches(rows) if rows.vectors else RowByRow(rows)
        loader = data_loader(dataset, batch_sampler=plan, collate_fn=collate, **common)
    return endless_batches(loader, plan)


def by_mapped_file(rows: Rows, plan: Plan, pinned: bool) -> Iterator[Loaded]:
    """A whole batch by one indexed read, in this process."""
    for numbers in plan.without_end():
        values = rows.values.take(numbers, axis=0)  # of short rows an indexed read takes ten times as long
        batch = torch.from_numpy(values if rows.vectors else values.astype(np.int64))
        yield Loaded(batch.pin_memory() if pinned else batch, os.getpid(), 1)


def on_device(rows: Rows, plan: Plan, device: torch.device) -> Iterator[Loaded]:
    """All rows live on the device; a batch is an indexed read there, and nothing travels but row numbers."""
    values = on_host(rows, rows.values).to(device)
    epoch, order = -1, torch.empty(0)
    number = plan.start
    while True:
        if number // len(plan) != epoch:
            epoch = number // len(plan)
            order = plan.order(epoch).to(device)
        first = number % len(plan) * plan.batch
        yield Loaded(values[order[first : first + plan.batch]], os.getpid(), 0)
        number += 1


class Mover:
    """Copies batches to the device and counts how they came and went."""

    def __init__(
        self, device: torch.device, non_blocking: bool, counts: Counter[str], dtype: torch.dtype
    ) -> None:
        self.device, self.counts, self.dtype = device, counts, dtype
        self._move = loading.Mover(device, non_blocking, counts)

    def __call__(self, batch: Loaded) -> Tensor:
        """The batch on the device."""
        self.counts["row_fetches"] += batch.fetches
        moved = self._move(batch.values, batch.loaded_by)
        return moved.to(self.dtype) if moved.is_floating_point() else moved


class Feed:
    """The batches of a training, fetched and moved when they are asked for.

    Attributes
    ----------
    taken : batches handed out, which is where a resumed training goes on: a batch that was only fetched ahead
        is fetched again
    """

    def __init__(self, batches: Iterator[Any], move: Mover, start: int) -> None:
        self._batches, self._move = batches, move
        self.taken = start

    def fetch(self) -> Any:
        """The next batch on the host."""
        self.taken += 1
        return next(self._batches)

    def move(self, fetched: Any) -> Tensor:
        """A fetched batch on the device."""
        return self._move(fetched)

    def close(self) -> None:
        """End worker processes: they go with the last reference to the loader."""
        self._batches = iter(())


class FeedAhead(Feed):
    """The next batch is fetched and copied on a stream of its own while this one is computed.

    The field report's sample never waits for the copy, and drops accumulation. Here the computing stream
    waits, and the memory of a batch is held until that stream has done with it.
    """

    def __init__(self, batches: Iterator[Loaded], move: Mover, start: int) -> None:
        moved = loading.ahead(map(move, batches), move.device, move.counts, tensors=lambda batch: [batch])
        super().__init__(moved, move, start)

    def move(self, fetched: Any) -> Tensor:
        """Nothing is left to do."""
        return fetched
