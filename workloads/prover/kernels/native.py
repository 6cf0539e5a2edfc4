"""Kernels in C++ for the CPU, called by ctypes."""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path

import torch
from torch import Tensor

from perfsweep.workloads import native
from perfsweep.workloads.prover.counters import Tally
from perfsweep.workloads.prover.data.knowledge import ATOMS, MAX_DEPTH, FactSet, KnowledgeBase
from perfsweep.workloads.prover.maths.episodes import Rows
from perfsweep.workloads.prover.maths.greedy_choice import FLOAT32_DOUBT, TAU, RaggedScores
from perfsweep.workloads.prover.maths.packing import CAP, Lists

SOURCE = Path(__file__).with_name("native.cpp")
NAMES = {
    torch.int16: "i16",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.float32: "f32",
    torch.bfloat16: "bf16",
}


@functools.cache
def library() -> ctypes.CDLL:
    """The built kernels; see `perfsweep.workloads.native.library`."""
    found = native.library(SOURCE, "expand_kernel=native or fused_trunk=on")
    for name in ("i16", "i32", "i64"):
        getattr(found, f"expand_{name}").restype = ctypes.c_int64
    return found


def pointer(tensor: Tensor) -> ctypes.c_void_p:
    """Where the data of a contiguous tensor begins."""
    return ctypes.c_void_p(tensor.data_ptr())


class _Base(ctypes.Structure):
    _fields_ = [
        *(
            (name, ctypes.c_void_p)
            for name in ("facts", "keys", "swapped", "swapped_keys", "fact_start", "fact_count")
        ),
        *(
            (name, ctypes.c_void_p)
            for name in ("heads", "bodies", "body_length", "rule_start", "rule_count", "table")
        ),
        *(
            (name, ctypes.c_int64)
            for name in ("facts_total", "longest", "bits", "multiplier", "probes", "base", "constants")
        ),
    ]


class _Counts(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int64) for name in ("fact_pairs", "rule_pairs", "rows")]


class NativeExpander:
    """Lists of successors row by row; finished rows are passed over. `rows` counts the others."""

    def __init__(self, kb: KnowledgeBase, dtype: torch.dtype, ragged: bool) -> None:
        self.kb, self.dtype, self.ragged = kb, dtype, ragged
        self.function = getattr(library(), f"expand_{NAMES[dtype]}")
        self.rows = 0
        self._held, self.base = self._base(FactSet(kb))
        self._room(0)

    def _base(self, facts: FactSet) -> tuple[dict[str, Tensor], _Base]:
        kb = self.kb
        held = {
            "facts": kb.facts.to(torch.int32),
            "keys": kb.fact_keys,
            "swapped": kb.swapped.to(torch.int32),
            "swapped_keys": kb.swapped_keys,
            "fact_start": kb.fact_start,
            "fact_count": kb.fact_count,
            "heads": kb.heads.to(torch.int32),
            "bodies": kb.bodies.to(torch.int32),
            "body_length": kb.body_length,
            "rule_start": kb.rule_start,
            "rule_count": kb.rule_count,
            "table": facts.table,
        }
        held = {name: tensor.contiguous() for name, tensor in held.items()}
        numbers = (len(kb.facts), kb.longest_body, facts.bits, facts.multiplier, facts.probes)
        base = _Base(*map(pointer, held.values()), *numbers, kb.vocabulary.base, len(kb.vocabulary.constants))
        return held, base

    def _room(self, rows: int) -> None:
        """Buffers for the longest lists many rows can have; a step copies what it takes from them."""
        self.capacity = rows
        self.states = torch.empty(rows * CAP, ATOMS, 3, dtype=self.dtype)
        self.hashes = torch.empty(rows * CAP, dtype=torch.int64)
        self.owner = torch.empty(rows * CAP, dtype=torch.int64)

    def __call__(self, rows: Rows, tally: Tally) -> tuple[Lists, Tensor]:
        """Lists of all rows; none ever has to wait."""
        if rows.batch > self.capacity:
            self._room(rows.batch)
        count = torch.empty(rows.batch, dtype=torch.int64)
        proof, overflow = torch.empty(2, rows.batch, dtype=torch.bool)
        counts = _Counts()
        given = [rows.current, rows.excluded, rows.history, rows.stored, rows.done]
        given = [tensor.contiguous() for tensor in given]
        out = (self.states, self.hashes, self.owner, count, proof, overflow)
        places = map(pointer, (*given, *out))
        base, size = ctypes.byref(self.base), ctypes.c_int64(rows.batch)
        total = self.function(base, size, *places, ctypes.byref(counts))
        self.rows += counts.rows
        tally["fact_pairs"], tally["rule_pairs"] = counts.fact_pairs, counts.rule_pairs
        tally["bytes_packed"] = total * ATOMS * 3 * self.dtype.itemsize
        states, hashes, owner = self.states[:total], self.hashes[:total], self.owner[:total]
        mask = torch.ones(1, dtype=torch.bool).expand(total)
        lists = Lists(states, hashes, mask, owner, count, proof, overflow)
        return lists if self.ragged else as_grid(lists), torch.zeros_like(rows.done)


def as_grid(lists: Lists) -> Lists:
    """Ragged lists moved into grids of CAP places."""
    rows = len(lists.sizes)
    start = lists.sizes.cumsum(0) - lists.sizes
    place = lists.owner * CAP + torch.arange(len(lists.owner), device=lists.owner.device) - start[lists.owner]
    states = lists.states.new_zeros(rows * CAP, *lists.states.shape[1:]).index_copy_(0, place, lists.states)
    hashes = lists.hashes.new_zeros(rows * CAP).index_copy_(0, place, lists.hashes).view(rows, CAP)
    mask = torch.arange(CAP, device=place.device) < lists.sizes[:, None]
    empty = lists.owner[:0]
    return Lists(
        states.view(rows, CAP, *states.shape[1:]),
        hashes,
        mask,
        empty,
        lists.sizes,
        lists.proof,
        lists.overflow,
    )


def activate(
    product: Tensor, bias: Tensor, scale: Tensor, shift: Tensor, x: Tensor | None
) -> tuple[Tensor, Tensor]:
    """x + LN(ReLU(product + bias)) in float32 [N, D], in place of a given x; and in the product's type."""
    out = torch.empty(product.shape) if x is None else x
    following = out if product.dtype == torch.float32 else torch.empty_like(product)
    getattr(library(), f"activate_{NAMES[product.dtype]}")(
        *map(ctypes.c_int64, product.shape),
        *map(pointer, (product, bias, scale, shift)),
        ctypes.c_int(x is not None),
        *map(pointer, (out, following)),
    )
    return out, following


def first_layer(
    states: Tensor,
    table: Tensor,
    offsets: tuple[int, int],
    decay: float,
    bias: Tensor,
    scale: Tensor,
    shift: Tensor,
    dtype: torch.dtype,
) -> tuple[Tensor, Tensor]:
    """The first layer of states [N, A, 3] from folded tables, as `activate` returns it."""
    states = states.contiguous()
    out = torch.empty(len(states), table.shape[1])
    following = out if dtype == torch.float32 else torch.empty(out.shape, dtype=dtype)
    getattr(library(), f"first_{NAMES[states.dtype]}_{NAMES[dtype]}")(
        *map(ctypes.c_int64, out.shape),
        *map(pointer, (states, table)),
        *map(ctypes.c_int64, offsets),
        ctypes.c_float(decay),
        *map(pointer, (bias, scale, shift, out, following)),
    )
    return out, following


def dots(values: Tensor, keys: Tensor, offset: Tensor, owner: Tensor) -> Tensor:
    """Logits [n] of values [n, D] with the keys [B, D] and offsets [B] of their owners [n]."""
    values, keys = values.contiguous(), keys.contiguous()
    out = torch.empty(len(values))
    getattr(library(), f"dots_{NAMES[values.dtype]}")(
        *map(ctypes.c_int64, values.shape),
        *map(pointer, (values, keys, offset.contiguous(), owner.contiguous(), out)),
    )
    return out


STEP_SOURCE = Path(__file__).with_name("select.cpp")
MOVED = (
    *("current", "history", "stored", "depth", "done", "success"),
    *("log_prob", "ambiguous", "actions", "value"),
)
"""Fields of `Rows` that a move writes, in the kernel's order."""


@functools.cache
def step_library() -> ctypes.CDLL:
    """The built kernel; see `perfsweep.workloads.native.library`."""
    return native.library(STEP_SOURCE, "select_kernel=native")


class _StepSizes(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_int64) for name in ("rows", "state_bytes", "width", "entries", "depth")),
        *((name, ctypes.c_float) for name in ("tau", "doubt")),
    ]


class _StepCounts(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int64) for name in ("live", "successors", "overflow", "deferred")]


def _pointers(*tensors: Tensor | None) -> ctypes.Array[ctypes.c_void_p]:
    """What the kernel reads as a structure of pointers, null for None."""
    held = [pointer(tensor) if tensor is not None else None for tensor in tensors]
    return (ctypes.c_void_p * len(held))(*held)


def move_on(
    rows: Rows, lists: Lists, scores: RaggedScores, waits: Tensor, doubt: float = FLOAT32_DOUBT
) -> tuple[Rows, _StepCounts]:
    """Rows one action further, and what was counted; all of the given rows but `done` is lost.

    Parameters
    ----------
    lists : ragged
    waits : [B] rows that cannot be worked on in this iteration
    """
    rows = rows._replace(done=rows.done.clone())  # schedules compare it with the one before
    sizes = _StepSizes(
        rows.batch,
        rows.current[:1].nbytes if rows.batch else 0,
        rows.value.shape[1],
        rows.history.shape[1],
        MAX_DEPTH,
        TAU,
        doubt,
    )
    values = scores.values.contiguous()
    counts = _StepCounts()
    step_library().move_on(
        _pointers(*(getattr(rows, name) for name in MOVED)),
        _pointers(*lists[:2], *lists[4:], waits),
        _pointers(scores.logits, scores.last, values, scores.place),
        ctypes.byref(sizes),
        ctypes.byref(counts),
    )
    return rows, counts
