"""Toggles and claims of the prover: compiled evaluation of a proof policy on a knowledge graph.

"About" in a report is read as within ten per cent.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from workloads import toggles as shared
from workloads.api import Check, Claim, Comparator, Level, Levels, LevelValue, Parity, Toggle

SOURCE = "Prover report"


@dataclass
class Config:
    """What refusals depend on."""

    constants: int = 2968
    predicates: int = 12
    atoms: int = 6


CHECKS = (
    Check("success", Comparator.IDENTICAL, excused="ambiguous"),
    Check("depth", Comparator.IDENTICAL, excused="ambiguous"),
    Check("actions", Comparator.IDENTICAL, excused="ambiguous"),
    Check("log_prob", Comparator.ABSOLUTE, 1e-4, excused="ambiguous"),  # divided by 1 + depth
    Check("rank", Comparator.IDENTICAL, excused="ambiguous_query"),
    Check("metrics", Comparator.IDENTICAL, excused="ambiguous_mode"),
    Check("ambiguous_share", Comparator.AT_MOST, 0.01, against="oracle"),
    Check("screening_error", Comparator.AT_MOST, 0.5, against="oracle"),  # in units of delta; 0 without screening
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
}


def _too_many_ids(config: Config, levels: Levels) -> str | None:
    largest = max(config.constants + 2 * config.atoms, config.predicates + 3)
    if largest < 2**15:
        return None
    return f"ids reach {largest}, and int16 ends at {2**15 - 1}: use index_dtype=int32"


def _on(**own: Any) -> tuple[Level, ...]:
    return Level("off"), Level("on", **own)


def _reordered(value: LevelValue, witness: str, **own: Any) -> Level:
    return Level(value, bounds=REORDERED, witness=witness, **own)


def _integers(value: LevelValue, witness: str, **own: Any) -> Level:
    return Level(value, bounds=INTEGERS, witness=witness, **own)


_SLABS: dict[str, Any] = {"conflicts": {"slab_size": ("all",)}}
_STATIC: dict[str, Any] = {
    "requires": {"policy_rows": ("padded", "row_budget")},
    "conflicts": {"rule_pairs": ("ragged",)},
    "bounds": REORDERED,
}

TOGGLES = (
    shared.slab_size(
        *("all", 512, "auto"),
        every={"bounds": REORDERED, "witness": "slabs"},
        each={"auto": {"requires": {"slab_search": ("ladder",)}}},
        source="Issue 1",
    ),
    Toggle(
        "pad_to_slab",
        (Level("off"), _reordered("copy_last", "padded_rows", **_SLABS), _reordered("done_row", "padded_rows", **_SLABS)),
        "fill the last slab with copies or with finished rows",
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
        "mask finished rows, or gather those that are left",
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
        each={"reduce_overhead": {"unsupported": shared.needs_graphs, "witness": "graph_captures"}},
        source="Issue 2",
    ),
    shared.compile_cache(every={"requires": {"compile": ("default", "reduce_overhead", "max_autotune")}}, source="Future 3"),
    Toggle(
        "corruptions",
        (Level("per_chunk"), _integers("all", "corruption_batches"), _integers("stream", "corruption_batches")),
        "draw corrupted queries for each chunk, all at once, or a chunk ahead",
        "Future 5",
    ),
    Toggle("fact_index", (Level("dense"), _integers("csr", "fact_pairs")), "look facts up by bound arguments", "Future 6"),
    Toggle("pack_width", (Level("wide26"), _integers("tight", "bytes_packed")), "slots of a raw successor", "Future 6"),
    Toggle(
        "rule_pairs",
        (Level("pad100"), _integers("exact", "rule_pairs"), _integers("ragged", "rule_pairs")),
        "rules tried for a goal",
        "Future 6",
    ),
    Toggle(
        "index_dtype",
        (Level("int64"), _integers("int32", "bytes_packed"), _integers("int16", "bytes_packed", refused=_too_many_ids)),
        "integer type of packed states",
        "Future 6",
    ),
    Toggle(
        "policy_rows",
        (Level("padded"), _reordered("row_budget", "states_padded"), _reordered("ragged", "states_padded")),
        "states the policy sees: padded lists, a fixed budget of rows, or the real ones",
        "Future 6",
    ),
    Toggle("obs_reuse", (Level("off"), _reordered("on", "states_evaluated")), "keep the value of the chosen successor"),
    Toggle("const_states", (Level("off"), _reordered("on", "states_evaluated")), "value constant states once"),
    Toggle(
        "forced_skip",
        (Level("off"), _reordered("on", "states_evaluated", conflicts={"policy_rows": ("padded",)})),
        "rows with one action skip the policy",
    ),
    Toggle("fold", (Level("off"), _reordered("on", "policy_macs")), "fold the first layer into the tables, apply the last late"),
    Toggle(
        "dedup",
        (Level("off"), _reordered("step", "states_evaluated"), _reordered("global", "states_evaluated")),
        "value each distinct state once",
    ),
    shared.tf32(every={"bounds": ROUNDED, "witness": "tf32_products"}),
    shared.amp(keep=("off", "bf16"), every={"bounds": ROUNDED, "witness": "low_precision_ops"}),
    Toggle("compaction", (Level("sort"), _integers("scan", "sorts")), "pack by prefix sums instead of a stable sort", "Future 6"),
    Toggle(
        "screen16",
        (
            Level("off"),
            Level(
                "on",
                parity=Parity.TOLERANCE,
                bounds={"log_prob": 1e-2},
                conflicts={"tf32": ("on",), "amp": ("bf16",)},
                witness="states_rescored",
            ),
        ),
        "score in bfloat16, score again in float32 what comes near the best",
    ),
    Toggle(
        "expand_kernel",
        (Level("torch"), _integers("triton", "kernel_rows", unsupported=shared.needs_cuda)),
        "expand a row in one program that skips finished rows",
        "Future 1",
    ),
)

REFERENCES: dict[str, dict[str, LevelValue]] = {"naive": {}, "naive_best_slab": {"slab_size": 16}}

BEST: dict[str, LevelValue] = {
    "slab_size": 512,
    "pad_to_slab": "done_row",
    "warmup": "exact",
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
    "dedup": "global",
    "compaction": "scan",
}

PRESETS: dict[str, dict[str, LevelValue]] = {
    "screened": {**BEST, "screen16": "on"},
    "static": {
        **BEST,
        "compile": "reduce_overhead",
        "compile_cache": "shared",
        "rule_pairs": "exact",
        "policy_rows": "row_budget",
    },
    "gpu": {**BEST, "slab_size": 4096, "expand_kernel": "triton", "tf32": "on"},
}

CHAIN: tuple[tuple[str, LevelValue], ...] = ()

FORBIDDEN: tuple[tuple[dict[str, LevelValue], str], ...] = (
    ({"slab_size": "auto"}, "slab_search"),
    ({"slab_size": 64, "slab_search": "ladder"}, "slab_size"),
    ({"pad_to_slab": "copy_last"}, "slab_size"),
    ({"pad_to_slab": "done_row"}, "slab_size"),
    ({"warmup": "exact"}, "slab_size"),
    ({"refill": "queue"}, "slab_size"),
    ({"slab_size": 512, "refill": "queue", "skip_done": "compact"}, "skip_done"),
    *(({"compile": mode, "policy_rows": "ragged"}, "policy_rows") for mode in ("default", "reduce_overhead", "max_autotune")),
    ({"compile": "default", "rule_pairs": "ragged"}, "rule_pairs"),
    ({"compile_cache": "shared"}, "compile"),
    ({"forced_skip": "on"}, "policy_rows"),
    ({"screen16": "on", "tf32": "on"}, "tf32"),
    ({"screen16": "on", "amp": "bf16"}, "amp"),
)

REFUSED_BY_CONFIG: tuple[tuple[Config, dict[str, LevelValue], str], ...] = (
    (Config(constants=32756), {"index_dtype": "int16"}, "int32"),
    (Config(predicates=2**15), {"index_dtype": "int16"}, "int32"),
)


def _claim(section: str, text: str, *arms: Mapping[str, LevelValue], **judged: Any) -> Claim:
    return Claim(text, SOURCE, section, arms, **judged)


def _word(word: str, section: str, text: str, *arms: Mapping[str, LevelValue]) -> Claim:
    return _claim(section, text, *arms, kind="qualitative", word=word)


def _fact(
    section: str,
    text: str,
    arm: Mapping[str, LevelValue],
    figure: str,
    low: float | None = None,
    high: float | None = None,
    **more: Any,
) -> Claim:
    return _claim(section, text, arm, kind="predicate", figure=figure, low=low, high=high, **more)


_ON_CUDA: dict[str, Any] = {"unsupported": shared.needs_cuda}
_SLAB: dict[str, LevelValue] = {"slab_size": 512}
_COMPILED: dict[str, LevelValue] = {**_SLAB, "compile": "reduce_overhead"}
_FIXED: dict[str, LevelValue] = {**_COMPILED, "pad_to_slab": "done_row", "warmup": "exact"}

CLAIMS = (
    _fact(
        "Issue 1",
        "10,100 candidates at once need about 12 GB for derived states",
        {"slab_size": "all"},
        "derived_states_bytes",
        10.8e9,
        13.2e9,
    ),
    _claim("Issue 1", "chunks of a fixed size fit where all candidates at once do not", _SLAB, kind="memory", high=1.0),
    _fact("Issue 2", "each new batch size compiles for 20 to 30 s", _COMPILED, "recompile_s", 20, 30, **_ON_CUDA),
    _claim(
        "Issue 2",
        "a chunk padded to the size already compiled takes 0.27 s, one of a new size 2.97 s",
        *({"pad_to_slab": value} for value in ("copy_last", "done_row")),
        against=_COMPILED,
        low=0.9 * 2.97 / 0.27,
        high=1.1 * 2.97 / 0.27,
    ),
    _fact("Issue 2", "warming up with the very size leaves nothing to compile", _FIXED, "recompiles_after_warmup", high=0),
    *(
        _claim(
            "Issue 3",
            f"a query costs {ms} ms at {size} rows and 0.41 ms at 512",
            {"slab_size": size},
            against=_SLAB,
            low=0.9 * 0.41 / ms,
            high=1.1 * 0.41 / ms,
        )
        for size, ms in ((100, 0.79), (256, 0.47), (1024, 3.37))
    ),
    _fact(
        "Issue 3",
        "derived states of 1024 rows take about 75 MB and thrash the cache",
        {"slab_size": 1024},
        "derived_states_bytes",
        67.5e6,
        82.5e6,
    ),
    _word("faster", "Issue 3", "choosing the size by memory finds the best one", {"slab_size": "auto", "slab_search": "ladder"}),
    _fact("Issue 4", "a step costs the same however many rows are done", {"skip_done": "none"}, "step_ms_slope", high=0.1),
    _fact("Issue 4", "varied queries take 5.6 times as long as short ones", _SLAB, "varied_over_short", 5.0, 6.2),
    _word(
        "faster",
        "Issue 4",
        "stopping once all rows are done saves the rest of the steps",
        *({"early_exit_all": value} for value in ("sync", "every_k", "async_lag1")),
    ),
    _fact("Current performance", "1.80 ms per candidate", _FIXED, "ms_per_candidate", 1.62, 1.98, **_ON_CUDA),
    _claim(
        "Future 1",
        "skipping finished rows is two to four times as fast",
        *({"skip_done": "where_mask"}, {"skip_done": "compact"}, {"expand_kernel": "triton"}),
        low=2.0,
        high=4.0,
    ),
    _fact(
        "Future 1",
        "compacted rows have changing shapes, which no graph can replay",
        {**_COMPILED, "skip_done": "compact"},
        "graph_captures",
        None,
        0,
    ),
    _word("moderate", "Future 2", "256 rows suit small evaluations and 512 large ones", {"slab_size": 256}, {"slab_size": 512}),
    _word(
        "faster",
        "Future 3",
        "a cache on disk saves compiling in every process",
        {"compile": "default", "compile_cache": "shared"},
        {"compile_cache": "shared"},
    ),
    _claim("Future 4", "fewer steps per query would be faster and change what is evaluated", kind="predicate"),
    _word("faster", "Future 5", "corruptions of all chunks can be drawn as one tensor", {"corruptions": "all"}),
    _claim("Future 5", "corruptions of all chunks can be too many to hold", {"corruptions": "all"}, kind="memory", low=1.0),
    _word(
        "faster",
        "Future 6",
        "fused matching of facts and rules",
        *({"fact_index": "csr"}, {"compaction": "scan"}, {"expand_kernel": "triton"}),
    ),
    _word(
        "faster",
        "Future 6",
        "a layout that reads memory in order",
        *({"index_dtype": "int32"}, {"index_dtype": "int16"}),
    ),
    _word(
        "faster",
        "Future 6",
        "less padding",
        *({"pack_width": "tight"}, {"rule_pairs": "exact"}, {"rule_pairs": "ragged"}),
        *({"policy_rows": "row_budget"}, {"policy_rows": "ragged"}),
    ),
    _word("faster", "Recommendation 1", "reduce-overhead is the faster mode once warm", {"compile": "reduce_overhead"}),
    _fact("Recommendation 2", "the default mode has no graphs to restrict it", {"compile": "default"}, "graph_captures", high=0),
    _fact("Recommendation 3", "a warm-up before timing leaves nothing to compile", _FIXED, "recompiles_after_warmup", high=0),
    _word("faster", "Recommendation 4", "512 rows suit a GPU of 8 GB", _SLAB),
    _claim("Recommendation 5", "half the steps suffice if accuracy permits", kind="predicate"),
)
