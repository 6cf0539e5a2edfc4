"""How many rows a slab can have and how many it should.

Predicted memory, a refusal in place of an out-of-memory error, a search for the least time per row.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from perfsweep.workloads.prover.counters import Tally
from perfsweep.workloads.prover.data.knowledge import SUCCESSORS
from perfsweep.workloads.prover.maths.episodes import Rows

Step = Callable[[Rows], tuple[Rows, Tally]]
Start = Callable[[Tensor, Tensor], Rows]
"""Candidates [B, 1+r] and their numbers [B] to rows."""

LIVE_RAW = 5
"""Tensors as large as the raw successors that exist at once: parts, their join, and what is gathered from it.
"""
LIVE_STATES = 6
"""Activations of one state that exist at once, in widths of the network."""
LADDER = tuple(2**power for power in range(3, 14))
"""Sizes that are tried."""
STEPS = 3
"""Timed steps of each size."""


class PredictedOutOfMemory(MemoryError):
    """A slab that would not fit: refused before the allocator, or the kernel, has to."""


@dataclass(frozen=True)
class SlabMemory:
    """Bytes per row of a slab.

    Attributes
    ----------
    pairs : pairs of a row with facts and rules; slots : W; item : bytes of an id
    states : states of a row that go through the network; width : its width
    """

    pairs: int
    slots: int
    columns: int
    item: int
    states: int
    width: int

    def raw_bytes(self, rows: int) -> int:
        """One tensor of raw successors."""
        return rows * self.pairs * self.slots * self.columns * self.item

    def derived_bytes(self, rows: int) -> int:
        """One tensor of packed successors, the [B, 120, W, 1+r] of the report."""
        return rows * SUCCESSORS * self.slots * self.columns * self.item

    def peak_bytes(self, rows: int) -> int:
        """Everything at once."""
        return LIVE_RAW * self.raw_bytes(rows) + LIVE_STATES * rows * self.states * self.width * 4

    def check(self, rows: int, budget: int) -> None:
        """Refuse a slab of `rows` that needs more than `budget` bytes.

        Raises
        ------
        PredictedOutOfMemory
            With the predicted peak, the largest single tensor and a slab that would fit.
        """
        peak = self.peak_bytes(rows)
        if peak > budget:
            fits = max(0, budget // max(1, self.peak_bytes(1)))
            advice = f"toggles.slab_size={fits} would fit" if fits else "not even one row would fit"
            raise PredictedOutOfMemory(
                f"a slab of {rows} rows is predicted to need {peak / 1e9:.2f} GB"
                f" ({self.raw_bytes(rows) / 1e9:.2f} GB for one tensor of raw successors) and the budget is"
                f" {budget / 1e9:.2f} GB: {advice}"
            )


def device_budget(memory_gb: float | None, given: int | None, device: str) -> int:
    """Bytes a slab may need: what is configured, else nine tenths of what the device has."""
    limits = [int(memory_gb * 1e9)] if memory_gb is not None else []
    limits += [given] if given is not None else []
    if device == "cuda":
        limits.append(int(0.9 * torch.cuda.mem_get_info()[1]))
    else:
        limits.append(int(0.9 * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")))
    return min(limits)


def best_slab(
    *, step: Step, start: Start, queries: Tensor, most: int, memory: SlabMemory, budget: int, file: Path
) -> tuple[int, int]:
    """The best size of the ladder that fits the budget, and the number of steps the choice rests on.

    Sizes beyond `most` candidates, of which the smallest is still tried, could not be filled.

    `file` keeps the answer: later trials of a sweep must choose the same slab.
    """
    if not file.exists():
        _keep(_climb(lambda size: _probe(step, start, queries, size), most, memory, budget), file)
    times = {int(size): found for size, found in json.loads(file.read_text()).items()}
    return min(times, key=lambda size: times[size]), STEPS * len(times)


def _keep(times: dict[int, float], file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_suffix(f".{time.time_ns()}.part")
    part.write_text(json.dumps(times))
    part.replace(file)


def _climb(probe: Callable[[int], float], most: int, memory: SlabMemory, budget: int) -> dict[int, float]:
    """Seconds per row and step by size, smallest first; two rungs in a row far above the best end it."""
    times: dict[int, float] = {}
    for size in LADDER:
        if times and (memory.peak_bytes(size) > budget or size >= 2 * most):
            break
        times[size] = probe(size)
        if all(found > 1.5 * min(times.values()) for found in list(times.values())[-2:]):
            break
    return times


def _probe(step: Step, start: Start, queries: Tensor, size: int) -> float:
    atoms = queries.repeat(-(-size // len(queries)), 1)[:size]
    rows = start(atoms, torch.full((size,), -1, device=atoms.device))
    rows, _ = step(rows)  # compiles, fills caches
    began = processor_seconds(rows.done)
    for _ in range(STEPS):
        rows, _ = step(rows)
    return (processor_seconds(rows.done) - began) / (STEPS * size)


def processor_seconds(like: Tensor) -> float:
    """Seconds on the clock of `like`'s device, its queue drained; of this process if that is a CPU."""
    if like.is_cuda:
        torch.cuda.synchronize()
        return time.perf_counter()
    return time.process_time()


def cache_file(folder: Path, *dimensions: object) -> Path:
    """Where the answer for a device and these dimensions is kept."""
    key = hashlib.sha256(json.dumps([str(value) for value in dimensions]).encode()).hexdigest()[:16]
    return folder / f"prover-slab-{key}.json"
