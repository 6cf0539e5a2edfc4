"""What becomes of rows that are done: a slab ends with the last, leaves them out, or replaces them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from perfsweep.workloads.api import Level, Toggle
from perfsweep.workloads.prover.variants.part import Part, reordered
from perfsweep.workloads.variant import Variant

if TYPE_CHECKING:
    from torch import Tensor

    from perfsweep.workloads.prover.counters import Tally
    from perfsweep.workloads.prover.maths.episodes import Rows
    from perfsweep.workloads.prover.reference import Queue

SMALLEST_BUCKET = 16
EVERY_K = 4

EARLY_EXIT_ALL = Toggle(
    "early_exit_all",
    (Level("off"), *(Level(value, witness="steps") for value in ("sync", "every_k", "async_lag1"))),
    "stop when every row is done, and how that is found out",
    "Issue 4",
)


class ExitAtOnce(Part):
    """The host waits for the answer after every step."""

    def over(self, rows: Rows, steps: int) -> bool:
        """Whether all rows are done."""
        return bool(rows.done.all())


class ExitEveryK(Part):
    """The host waits after some steps."""

    def over(self, rows: Rows, steps: int) -> bool:
        """Whether all rows are done, every few steps."""
        return (steps % EVERY_K == 0 and bool(rows.done.all())) or super().over(rows, steps)


class ExitLagging(Part):
    """The host never waits: the answer is that of the step before, whose copy to the host has had time."""

    def over(self, rows: Rows, steps: int) -> bool:
        """Whether all rows were done a step earlier."""
        from perfsweep.workloads.prover.data.knowledge import MAX_DEPTH

        if steps >= MAX_DEPTH:
            return super().over(rows, steps)
        before = self.sent if steps > 1 else None
        self.sent = self._sent(rows.done.all())
        return before is not None and bool(before)

    def _sent(self, flag: Tensor) -> Tensor:
        import torch

        if not flag.is_cuda:
            return flag
        # Until the copy arrives it says "not yet", which costs an iteration and is never wrong.
        host = torch.zeros((), dtype=torch.bool, pin_memory=True)
        return host.copy_(flag, non_blocking=True)


SKIP_DONE = Toggle(
    "skip_done",
    (Level("none"), reordered("where_mask", "masked_rows"), reordered("compact", "row_steps")),
    "mask finished rows, or gather the others",
    "Future 1",
)


class MaskedRows(Part):
    """The report's sketch: the states of finished rows are blank, in tensors of unchanged size."""

    def iteration(self, rows: Rows) -> tuple[Rows, Tally]:
        """One step of all rows."""
        import torch

        blank = torch.where(rows.done[:, None, None], torch.zeros_like(rows.current), rows.current)
        masked = rows.done.sum()
        rows, tally = self.step_all(rows._replace(current=blank))
        tally["masked_rows"] = masked
        return rows, tally


def bucket_sizes(rows: int) -> list[int]:
    """Sizes that active rows are compacted to: powers of two from 16, the slab itself on top."""
    sizes = []
    size = SMALLEST_BUCKET
    while size < rows:
        sizes.append(size)
        size *= 2
    return [*sizes, rows]


class CompactRows(Part):
    """Active rows alone are stepped, in the smallest bucket that holds them."""

    def step_sizes(self, slab: int) -> list[int]:
        """All buckets."""
        return bucket_sizes(slab)

    def iteration(self, rows: Rows) -> tuple[Rows, Tally]:
        """Gather active rows, step those, and scatter them into their places."""
        import torch

        active = (~rows.done).nonzero()[:, 0]
        size = next(size for size in bucket_sizes(rows.batch) if size >= len(active))
        part = rows.take(active)
        if size > len(active):
            part = rows.joined([part, self.finished_rows(size - len(active))])
        part, tally = self.step_all(part)
        return rows.put(active, part.take(torch.arange(len(active), device=active.device))), tally


REFILL = Toggle(
    "refill",
    (
        Level("off"),
        reordered("queue", "refilled", conflicts={"slab_size": ("all",), "skip_done": ("compact",)}),
    ),
    "a finished slot takes the next candidate of one queue, or leaves a slab of free size",
)


class Refilled(Part):
    """One slab whose finished slots take the next candidates; a free size shrinks with an empty queue."""

    def schedule(self, queue: Queue) -> Iterator[None]:
        """Yields after every iteration."""
        rows = self.fill(queue)
        first = True
        while rows is not None:
            before = rows.number >= 0
            rows, tally = self.step_all(rows)
            done = rows.done & (rows.number >= 0)
            at = done.nonzero()[:, 0]
            if len(at):
                queue.results.store(rows.take(at))
            atoms, numbers = queue.source.take(len(at))
            tally |= {
                # A slab of free size gains by an empty queue too: it drops the slots that have finished.
                "refilled": len(atoms) if self.static else len(at),
                "done": len(at),
                "slabs": int(first),
                "padded_rows": (~before).sum(),
            }
            first = False
            queue.log(tally)
            rows = self._renewed(rows, at, atoms, numbers)
            yield

    def _renewed(self, rows: Rows, at: Tensor, atoms: Tensor, numbers: Tensor) -> Rows | None:
        """Rows with the finished ones replaced; None when nothing is left to do."""
        import torch

        if not len(at):
            return rows
        fresh = self.start(atoms, numbers) if len(atoms) else None
        if self.static:
            rows = rows._replace(number=torch.where(rows.done, -1, rows.number))
            rows = rows.put(at[: len(atoms)], fresh) if fresh else rows
            return rows if bool((rows.number >= 0).any()) else None
        left = rows.take((~rows.done).nonzero()[:, 0])
        joined = rows.joined([left, fresh]) if fresh else left
        return joined if joined.batch else None


VARIANTS = (
    Variant(EARLY_EXIT_ALL, {"sync": ExitAtOnce, "every_k": ExitEveryK, "async_lag1": ExitLagging}),
    Variant(SKIP_DONE, {"where_mask": MaskedRows, "compact": CompactRows}),
    Variant(REFILL, {"queue": Refilled}),
)
