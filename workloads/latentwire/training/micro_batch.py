"""How many rows fit at a time: measured, not guessed from the size of the models."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.latentwire.data.batches import Collator, Shape, Window
from perfsweep.workloads.latentwire.data.corpus import Corpus

HEADROOM = 0.9  # share of the limit that may be filled: fragmentation needs the rest


def choose_rows(attempt: Callable[[int], None], most: int, device: torch.device, limit: int | None) -> int:
    """The largest power of two of rows, at most `most`, whose window fits into `limit` bytes.

    `attempt` runs a window of that many rows. Bytes are the allocator's peak on CUDA and those saved for the
    backward pass on CPU; a first attempt that runs out of memory counts as one that does not fit.

    Raises
    ------
    ConfigError
        Not even one row fits.
    """
    if limit is None:
        limit = _memory_of(device)
    fitting = _most_fitting(attempt, most, device, HEADROOM * limit)
    if not fitting:
        raise ConfigError(
            f"micro_batch=auto: not even one row fits into {limit / 2**20:.0f} MiB; "
            "raise workload.memory_mb or take a smaller preset"
        )
    return fitting


def _most_fitting(attempt: Callable[[int], None], most: int, device: torch.device, room: float) -> int:
    rows, fitting = 1, 0
    while rows <= most:
        used = _bytes_of(attempt, rows, device)
        if used is None or used > room:
            break
        rows, fitting = rows * 2, rows
        if used * 2 > room and used > 0 and rows <= most and device.type == "cpu":
            break  # saved bytes grow in proportion
    return fitting


def _memory_of(device: torch.device) -> int:
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return free + torch.cuda.memory_reserved(device)
    import os

    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")


def _bytes_of(attempt: Callable[[int], None], rows: int, device: torch.device) -> int | None:
    """Peak bytes of an attempt, None where it ran out of memory."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
        try:
            attempt(rows)
        except torch.OutOfMemoryError:
            return None
        return torch.cuda.max_memory_allocated(device)
    held: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        held[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    try:
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            attempt(rows)
    except torch.OutOfMemoryError:
        return None
    return sum(held.values())


def rows_that_fit(
    corpus: Corpus, shape: Shape, run: Callable[[Window], None], device: torch.device, budget: int | None
) -> int:
    """As `choose_rows`, for windows of the longest examples, which `run` takes."""
    longest = sorted(range(len(corpus)), key=lambda number: -len(corpus.sources[number]))

    def attempt(rows: int) -> None:
        run(Collator(corpus, shape.with_micro(rows).alone()).window(longest[:rows]))

    return choose_rows(attempt, shape.effective // shape.world, device, budget)
