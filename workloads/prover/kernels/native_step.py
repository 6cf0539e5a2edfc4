"""Choice and move of all rows in one program in C++, in place."""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path

from torch import Tensor

from perfsweep.workloads import native
from perfsweep.workloads.prover.data.knowledge import MAX_DEPTH
from perfsweep.workloads.prover.kernels.native import pointer
from perfsweep.workloads.prover.maths.episodes import Rows
from perfsweep.workloads.prover.maths.greedy_choice import FLOAT32_DOUBT, TAU, RaggedScores
from perfsweep.workloads.prover.maths.packing import Lists

SOURCE = Path(__file__).with_name("select.cpp")
MOVED = (
    *("current", "history", "stored", "depth", "done", "success"),
    *("log_prob", "ambiguous", "actions", "value"),
)
"""Fields of `Rows` that a move writes, in the kernel's order."""


@functools.cache
def library() -> ctypes.CDLL:
    """The built kernel; see `perfsweep.workloads.native.library`."""
    return native.library(SOURCE, "select_kernel=native")


class _Sizes(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_int64) for name in ("rows", "state_bytes", "width", "entries", "depth")),
        *((name, ctypes.c_float) for name in ("tau", "doubt")),
    ]


class _Counts(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int64) for name in ("live", "successors", "overflow", "deferred")]


def _pointers(*tensors: Tensor | None) -> ctypes.Array[ctypes.c_void_p]:
    """What the kernel reads as a structure of pointers, null for None."""
    held = [pointer(tensor) if tensor is not None else None for tensor in tensors]
    return (ctypes.c_void_p * len(held))(*held)


def move_on(
    rows: Rows, lists: Lists, scores: RaggedScores, waits: Tensor, doubt: float = FLOAT32_DOUBT
) -> tuple[Rows, _Counts]:
    """Rows one action further, and what was counted; all of the given rows but `done` is lost.

    Parameters
    ----------
    lists : ragged
    waits : [B] rows that cannot be worked on in this iteration
    """
    rows = rows._replace(done=rows.done.clone())  # schedules compare it with the one before
    sizes = _Sizes(
        rows.batch,
        rows.current[:1].nbytes if rows.batch else 0,
        rows.value.shape[1],
        rows.history.shape[1],
        MAX_DEPTH,
        TAU,
        doubt,
    )
    values = scores.values.contiguous()
    counts = _Counts()
    library().move_on(
        _pointers(*(getattr(rows, name) for name in MOVED)),
        _pointers(*lists[:2], *lists[4:], waits),
        _pointers(scores.logits, scores.last, values, scores.place),
        ctypes.byref(sizes),
        ctypes.byref(counts),
    )
    return rows, counts
