"""In what order candidates become rows of a slab, when finished rows are left out, and when a slab ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from perfsweep.workloads.prover.counters import Tally
from perfsweep.workloads.prover.data.corruption import Source
from perfsweep.workloads.prover.data.knowledge import MAX_DEPTH
from perfsweep.workloads.prover.maths.episodes import RowFactory, Rows
from perfsweep.workloads.prover.maths.results import Results

SMALLEST_BUCKET = 16
EVERY_K = 4

StepFunction = Callable[[Rows], tuple[Rows, Tally]]
Log = Callable[[Tally], None]


def bucket_sizes(rows: int) -> list[int]:
    """Sizes that active rows are compacted to: powers of two from 16, the slab itself on top."""
    sizes = []
    size = SMALLEST_BUCKET
    while size < rows:
        sizes.append(size)
        size *= 2
    return [*sizes, rows]


class AllRows:
    """Steps every row, finished or not."""

    def __init__(self, step: StepFunction) -> None:
        self.step = step

    def __call__(self, rows: Rows) -> tuple[Rows, Tally]:
        """One iteration."""
        rows, tally = self.step(rows)
        tally["row_steps"] = rows.batch
        return rows, tally


class MaskedRows(AllRows):
    """Blanks the state of finished rows first: the report's sketch, with tensors of unchanged size."""

    def __call__(self, rows: Rows) -> tuple[Rows, Tally]:
        """One iteration."""
        blank = torch.where(rows.done[:, None, None], torch.zeros_like(rows.current), rows.current)
        masked = rows.done.sum()
        rows, tally = super().__call__(rows._replace(current=blank))
        tally["masked_rows"] = masked
        return rows, tally


class CompactRows:
    """Gathers active rows into the smallest bucket that holds them, steps those, and scatters them back."""

    def __init__(self, step: StepFunction, factory: RowFactory) -> None:
        self.step, self.factory = step, factory

    def __call__(self, rows: Rows) -> tuple[Rows, Tally]:
        """One iteration."""
        active = (~rows.done).nonzero()[:, 0]
        size = next(size for size in bucket_sizes(rows.batch) if size >= len(active))
        part = rows.take(active)
        if size > len(active):
            part = Rows.joined([part, self.factory.padding(size - len(active), rows.done.device)])
        part, tally = self.step(part)
        tally["row_steps"] = size
        return rows.put(active, part.take(torch.arange(len(active), device=active.device))), tally


class ExitTest:
    """Whether a slab may end; `off` never looks before all steps are done.

    async_lag1 looks at the answer of the iteration before, whose copy to the host nobody waited for.
    """

    def __init__(self, level: str) -> None:
        self.level = level
        self.begin()

    def begin(self) -> None:
        """A slab starts."""
        self.steps = 0
        self.flag: Tensor | None = None

    def over(self, rows: Rows) -> bool:
        """Called after each iteration."""
        self.steps += 1
        if self.steps >= MAX_DEPTH:
            return bool(rows.done.all())  # rows that had to wait for room need more iterations
        match self.level:
            case "sync":
                return bool(rows.done.all())
            case "every_k":
                return self.steps % EVERY_K == 0 and bool(rows.done.all())
            case "async_lag1":
                return self._lagging(rows)
        return False

    def _lagging(self, rows: Rows) -> bool:
        before, self.flag = self.flag, self._sent(rows.done.all())
        return before is not None and bool(before)

    def _sent(self, flag: Tensor) -> Tensor:
        if not flag.is_cuda:
            return flag
        # Until the copy arrives it says "not yet", which costs an iteration and is never wrong.
        host = torch.zeros((), dtype=torch.bool, pin_memory=True)
        return host.copy_(flag, non_blocking=True)


@dataclass
class Slab:
    """What the two schedules share.

    Attributes
    ----------
    size : rows; None takes all candidates at once
    fixed : whether a slab must keep its size to the end (compiled steps)
    """

    factory: RowFactory
    source: Source
    results: Results
    log: Log
    check: Callable[[int], None]
    size: int | None
    pad: str
    fixed: bool

    def fill(self) -> Rows | None:
        """The next rows, padded to the slab where that is chosen; None when no candidate is left."""
        atoms, numbers = self.source.take(self.size)
        if not len(atoms):
            return None
        self.check(len(atoms))
        rows = self.factory.start(atoms, numbers)
        missing = (self.size or 0) - rows.batch
        return self._padded(rows, missing) if missing > 0 else rows

    def _padded(self, rows: Rows, missing: int) -> Rows:
        if self.pad == "off":
            return rows
        return Rows.joined([rows, self.factory.padding(missing, rows.done.device)])


def slab_by_slab(
    slab: Slab, iterate: Callable[[Rows], tuple[Rows, Tally]], exit_test: ExitTest
) -> Iterator[None]:
    """One slab after the other, each until it may end; yields after every iteration."""
    while (rows := slab.fill()) is not None:
        padded = rows.batch - int((rows.number >= 0).sum())
        exit_test.begin()
        started, over = True, False
        while not over:
            before = rows.done
            rows, tally = iterate(rows)
            tally["padded_rows"] = padded
            tally["slabs"] = int(started)
            tally["done"] = (rows.done & ~before).sum()
            started, over = False, exit_test.over(rows)
            slab.log(tally)
            yield
        slab.results.store(rows)


def queue_fed(slab: Slab, iterate: Callable[[Rows], tuple[Rows, Tally]]) -> Iterator[None]:
    """One slab whose finished slots take the next candidates; a free size shrinks with an empty queue."""
    rows = slab.fill()
    first = True
    while rows is not None:
        before = rows.number >= 0
        rows, tally = iterate(rows)
        done = rows.done & (rows.number >= 0)
        at = done.nonzero()[:, 0]
        if len(at):
            slab.results.store(rows.take(at))
        atoms, numbers = slab.source.take(len(at))
        tally |= {
            "refilled": len(atoms),
            "done": len(at),
            "slabs": int(first),
            "padded_rows": (~before).sum(),
        }
        first = False
        slab.log(tally)
        rows = _renewed(slab, rows, at, atoms, numbers)
        yield


def _renewed(slab: Slab, rows: Rows, at: Tensor, atoms: Tensor, numbers: Tensor) -> Rows | None:
    """Rows with the finished ones replaced; None when nothing is left to do."""
    if not len(at):
        return rows
    fresh = slab.factory.start(atoms, numbers) if len(atoms) else None
    if slab.fixed:
        rows = rows._replace(number=torch.where(rows.done, -1, rows.number))
        rows = rows.put(at[: len(atoms)], fresh) if fresh else rows
        return rows if bool((rows.number >= 0).any()) else None
    left = rows.take((~rows.done).nonzero()[:, 0])
    joined = Rows.joined([left, fresh]) if fresh else left
    return joined if joined.batch else None
