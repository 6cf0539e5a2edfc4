"""What the CUDA allocator holds: a picture of it, for whoever wants to know what the memory went to.

The file is for https://pytorch.org/memory_viz. With the history of allocations, which only profile trials
record, each block knows the code that asked for it; a trial that ran out of memory without history knows
sizes and segments only.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any, Protocol

import torch

ON_OOM = "oom_snapshot.pickle"


class Allocator(Protocol):
    """The part of `torch.cuda.memory` that is used here."""

    def _snapshot(self) -> Any:
        """Segments, blocks and, where recorded, the history of allocations."""
        ...


def is_oom(error: BaseException) -> bool:
    """Whether an exception says that memory ran out; CPU allocators raise a plain RuntimeError."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    return isinstance(error, RuntimeError) and "can't allocate memory" in str(error)


def keep_on_oom(folder: Path, allocator: Allocator | None = None) -> Path | None:
    """Write what the allocator holds after OOM; None without an allocator, or if nothing could be written.

    Only ever called when a trial has failed: whatever goes wrong here must not hide why.
    """
    allocator = allocator or _allocator_in_use()
    if allocator is None:
        return None
    file = folder / ON_OOM
    try:
        file.write_bytes(pickle.dumps(allocator._snapshot()))
    except (OSError, RuntimeError, MemoryError, pickle.PicklingError) as error:
        print(f"no memory snapshot: {error}", flush=True)  # into the trial's log
        return None
    return file


def _allocator_in_use() -> Allocator | None:
    """CUDA's, where this process has used CUDA: asking must not initialise a device."""
    return torch.cuda.memory if torch.cuda.is_available() and torch.cuda.is_initialized() else None
