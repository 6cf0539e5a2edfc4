"""What can be switched in the prover, and how far that may move results. Declarations only: no torch."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol

from perfsweep.workloads import toggles as shared
from perfsweep.workloads.api import Check, Comparator, Device, Level, Levels, LevelValue, Parity, Toggle

LONGEST_BODY = {"native": 10, "triton": 11}
"""Atoms of a rule's body that a kernel of `expand_kernel` has room for."""


class HasData(Protocol):
    """What refusals depend on."""

    arity: int

    @property
    def largest_id(self) -> int:
        """Of a term or predicate, variables fresh from a rule included."""
        ...

    @property
    def longest_body(self) -> int:
        """Atoms of the longest body of a rule."""
        ...


CHECKS = (
    Check("success", Comparator.IDENTICAL, excused="ambiguous"),
    Check("depth", Comparator.IDENTICAL, excused="ambiguous"),
    Check("actions", Comparator.IDENTICAL, excused="ambiguous"),
    Check("log_prob", Comparator.ABSOLUTE, 1e-4, excused="ambiguous"),  # divided by 1 + depth
    Check("rank", Comparator.IDENTICAL, excused="ambiguous_query"),
    Check("metrics", Comparator.IDENTICAL, excused="ambiguous_mode"),
    # What a timed trial says of its ranks. Means have no place for an excuse: one query in doubt of a handful
    # moves them by this much, and ranks are compared one by one above.
    Check("mrr", Comparator.ABSOLUTE, 0.1),
    Check("hits*", Comparator.ABSOLUTE, 0.2),
    Check("ambiguous_share", Comparator.AT_MOST, 0.01, against="oracle"),
    Check(
        "screening_error", Comparator.AT_MOST, 0.5, against="oracle"
    ),  # in units of delta; 0 without screening
)

INTEGERS = {"log_prob": 0.0}  # the products see the same numbers in the same order
REORDERED = {"log_prob": 1e-4}
# Rounding may turn a choice, and with it everything that follows: such candidates are counted, not forbidden.
ROUNDED = {
    "log_prob": 1e-2,
    "success": math.inf,
    "depth": math.inf,
    "actions": math.inf,
    "rank": math.inf,
    "metrics": math.inf,
    "mrr": math.inf,
    "hits*": math.inf,
}


def _too_many_ids(config: HasData, levels: Levels) -> str | None:
    if config.largest_id < 2**15:
        return None
    return f"ids reach {config.largest_id}, and int16 ends at {2**15 - 1}: use index_dtype=int32"


def cannot_expand(kernel: str, arity: int, longest_body: int) -> str | None:
    """Reason why a kernel of `expand_kernel` has no room for the atoms or rules of some data."""
    longest = LONGEST_BODY.get(kernel)
    if longest is None or (arity == 2 and longest_body <= longest):
        return None
    return (
        f"takes atoms of two arguments and bodies of at most {longest} atoms, and the data have {arity}"
        f" arguments and bodies of {longest_body}: use expand_kernel=torch"
    )


def _no_room(kernel: str) -> Callable[[HasData, Levels], str | None]:
    return lambda config, _: cannot_expand(kernel, config.arity, config.longest_body)


def _needs_cpu_compiler(device: Device) -> str | None:
    """Reason why a kernel in C++ cannot act here."""
    if device.type != "cpu":
        return f"a CPU kernel, and this is {device.type}: use expand_kernel=triton, select_kernel=torch"
    return None if device.compiler else "needs a C++ compiler and none is on PATH"


def _needs_any_compiler(device: Device) -> str | None:
    """Reason why the fused epilogue can be built neither by Triton nor by a C++ compiler."""
    return None if device.type == "cuda" or device.compiler else "needs a C++ compiler and none is on PATH"


def _on(**own: Any) -> tuple[Level, ...]:
    return Level("off"), Level("on", **own)


def _reordered(value: LevelValue, witness: str, **own: Any) -> Level:
    return Level(value, bounds=REORDERED, witness=witness, **own)


def _integers(value: LevelValue, witness: str, **own: Any) -> Level:
    return Level(value, bounds=INTEGERS, witness=witness, **own)


_SLABS: dict[str, Any] = {"conflicts": {"slab_size": ("all",)}}
_COMPILED: dict[str, tuple[LevelValue, ...]] = {"compile": ("default", "reduce_overhead", "max_autotune")}
_STATIC: dict[str, Any] = {
    "requires": {"policy_rows": ("padded", "row_budget")},
    "conflicts": {"rule_pairs": ("ragged",)},
    "bounds": REORDERED,
}

TOGGLES = (
    shared.slab_size(
        *("all", 512, "auto"),
        every={"bounds": REORDERED, "witness": "slabs"},
        # The search may well choose one slab for everything; that it searched shows in its steps.
        each={"auto": {"requires": {"slab_search": ("ladder",)}, "witness": "probe_steps"}},
        source="Issue 1",
    ),
    Toggle(
        "pad_to_slab",
        (Level("off"), _reordered("done_row", "padded_rows", **_SLABS)),
        "fill the last slab with finished rows",
        "Issues 1 and 2",
    ),
    Toggle(
        "warmup",
        (Level("tiny"), Level("exact", witness="warmup_rows", **_SLABS)),
        "warm up with two rows, or with the size and buffers that will be used",
        "Issue 2",
    ),
    Toggle(
        "slab_search",
        (Level("fixed512"), _reordered("ladder", "probe_steps", requires={"slab_size": ("auto",)})),
        "probe a ladder of slab sizes for a few steps each",
        "Issue 3",
    ),
    Toggle(
        "early_exit_all",
        (Level("off"), *(Level(value, witness="steps") for value in ("sync", "every_k", "async_lag1"))),
        "stop when every row is done, and how that is found out",
        "Issue 4",
    ),
    Toggle(
        "skip_done",
        (Level("none"), _reordered("where_mask", "masked_rows"), _reordered("compact", "row_steps")),
        "mask finished rows, or gather the others",
        "Future 1",
    ),
    Toggle(
        "refill",
        (
            Level("off"),
            _reordered("queue", "refilled", conflicts={"slab_size": ("all",), "skip_done": ("compact",)}),
        ),
        "a finished slot takes the next candidate of one queue",
    ),
    shared.compile(
        *("default", "reduce_overhead", "max_autotune"),
        every=_STATIC,
        each={
            "reduce_overhead": {"unsupported": shared.needs_graphs, "witness": "cudagraph_recordings"},
            "max_autotune": {"autotunes": True},
        },
        source="Issue 2",
    ),
    shared.compile_cache(
        every={"requires": {"compile": ("default", "reduce_overhead", "max_autotune")}}, source="Future 3"
    ),
    Toggle(
        "corruptions",
        (
            Level("per_chunk"),
            _integers("all", "corruption_batches"),
            _integers("stream", "corruption_batches"),
        ),
        "draw corrupted queries for each chunk, all at once, or a chunk ahead",
        "Future 5",
    ),
    Toggle(
        "fact_index",
        (Level("dense"), _integers("csr", "fact_pairs")),
        "look facts up by bound arguments",
        "Future 6",
    ),
    Toggle(
        "pack_width",
        (Level("wide26"), _integers("tight", "bytes_packed")),
        "slots of a raw successor",
        "Future 6",
    ),
    Toggle(
        "rule_pairs",
        (Level("pad100"), _integers("exact", "rule_pairs"), _integers("ragged", "rule_pairs")),
        "rules tried for a goal",
        "Future 6",
    ),
    Toggle(
        "index_dtype",
        (
            Level("int64"),
            _integers("int32", "bytes_packed"),
            _integers("int16", "bytes_packed", refused=_too_many_ids),
        ),
        "integer type of packed states",
        "Future 6",
    ),
    Toggle(
        "policy_rows",
        (Level("padded"), _reordered("row_budget", "states_padded"), _reordered("ragged", "states_padded")),
        "states the policy sees: padded lists, a fixed budget of rows, or the real ones",
        "Future 6",
    ),
    Toggle(
        "obs_reuse",
        (Level("off"), _reordered("on", "states_evaluated")),
        "keep the value of the chosen successor",
    ),
    Toggle(
        "const_states", (Level("off"), _reordered("on", "states_evaluated")), "value constant states once"
    ),
    Toggle(
        "forced_skip",
        (Level("off"), _reordered("on", "states_wanted", conflicts={"policy_rows": ("padded",)})),
        "rows with one action skip the policy",
    ),
    Toggle(
        "fold",
        (Level("off"), _reordered("on", "policy_macs")),
        "fold the first layer into the tables, apply the last late",
    ),
    Toggle(
        "dedup",
        (
            Level("off"),
            *(_reordered(value, "states_evaluated", conflicts=_COMPILED) for value in ("step", "global")),
        ),
        "value each distinct state once",
    ),
    shared.tf32(every={"bounds": ROUNDED, "witness": "tf32_products"}),
    Toggle(
        "compaction",
        (Level("sort"), _integers("scan", "sorts")),
        "pack by prefix sums instead of a stable sort",
        "Future 6",
    ),
    Toggle(
        "screen16",
        (
            Level("off"),
            Level(
                "on",
                parity=Parity.TOLERANCE,
                bounds={"log_prob": 1e-2},
                conflicts={"tf32": ("on",), "policy_rows": ("row_budget",), **_COMPILED},
                witness="states_rescored",
            ),
        ),
        "score in bfloat16, score again in float32 what comes near the best",
    ),
    Toggle(
        "expand_kernel",
        (
            Level("torch"),
            # Lists have no gaps there, so that softmax adds up in another order.
            *(
                _reordered(
                    name, "kernel_rows", unsupported=needs, refused=_no_room(name), conflicts=_COMPILED
                )
                for name, needs in (("triton", shared.needs_cuda), ("native", _needs_cpu_compiler))
            ),
        ),
        "expand a row in one program that skips finished rows",
        "Future 1",
    ),
    Toggle(
        "select_kernel",
        (
            Level("torch"),
            _reordered(
                "native",
                "selected_rows",
                unsupported=_needs_cpu_compiler,
                requires={"policy_rows": ("ragged",)},
                conflicts=_COMPILED,
            ),
        ),
        "choose and move in one program that skips finished rows",
    ),
    Toggle(
        "fused_trunk",
        (Level("off"), _reordered("on", "fused_rows", unsupported=_needs_any_compiler, conflicts=_COMPILED)),
        "bias, ReLU, normalisation and residual in one pass over a layer; on CPUs all layers block by block",
    ),
)

FAST: Levels = {
    "refill": "queue",
    "corruptions": "stream",
    "fact_index": "csr",
    "pack_width": "tight",
    "rule_pairs": "ragged",
    "index_dtype": "int32",
    "policy_rows": "ragged",
    "obs_reuse": "on",
    "const_states": "on",
    "forced_skip": "on",
    "fold": "on",
    "compaction": "scan",
}
"""The exact paths that save most, in float32."""
