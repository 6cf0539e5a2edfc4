"""Which slab size takes the least time per row: a ladder of sizes, a few steps each, kept per device and
dimensions."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from pathlib import Path

import torch

from workloads.prover.maths.rows import RowFactory
from workloads.prover.maths.schedule import StepFunction
from workloads.prover.maths.slab_memory import SlabMemory

LADDER = tuple(2**power for power in range(3, 14))
STEPS = 3


def best_slab(
    *,
    step: StepFunction,
    factory: RowFactory,
    queries: torch.Tensor,
    most: int,
    memory: SlabMemory,
    budget: int,
    file: Path,
) -> tuple[int, int]:
    """The best size of the ladder that fits the budget, and the number of steps the choice rests on.

    Sizes beyond `most` candidates, of which the smallest is still tried, could not be filled.

    `file` keeps the answer: later trials of a sweep must choose the same slab.
    """
    if not file.exists():
        times = _climb(lambda size: _probe(step, factory, queries, size), most, memory, budget)
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_suffix(f".{time.time_ns()}.part")
        part.write_text(json.dumps(times))
        part.replace(file)
    times = {int(size): found for size, found in json.loads(file.read_text()).items()}
    return min(times, key=lambda size: times[size]), STEPS * len(times)


def _climb(probe: Callable[[int], float], most: int, memory: SlabMemory, budget: int) -> dict[int, float]:
    """Seconds per row and step by size, smallest first; two rungs in a row far above the best end the
    climb."""
    times: dict[int, float] = {}
    for size in LADDER:
        if times and (memory.peak_bytes(size) > budget or size >= 2 * most):
            break
        times[size] = probe(size)
        if list(times.values())[-2:] > [1.5 * min(times.values())] * 2:
            break
    return times


def _probe(step: StepFunction, factory: RowFactory, queries: torch.Tensor, size: int) -> float:
    atoms = queries.repeat(-(-size // len(queries)), 1)[:size]
    rows = factory.start(atoms, torch.full((size,), -1, device=atoms.device))
    rows, _ = step(rows)  # compiles, fills caches
    start = _now(rows.done)
    for _ in range(STEPS):
        rows, _ = step(rows)
    return (_now(rows.done) - start) / (STEPS * size)


def _now(like: torch.Tensor) -> float:
    if like.is_cuda:
        torch.cuda.synchronize()
        return time.perf_counter()
    return time.process_time()


def cache_file(folder: Path, *dimensions: object) -> Path:
    """Where the answer for a device and these dimensions is kept."""
    key = hashlib.sha256(json.dumps([str(value) for value in dimensions]).encode()).hexdigest()[:16]
    return folder / f"prover-slab-{key}.json"
