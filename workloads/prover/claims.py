"""What the field report says, in its own words, as data. "About" in it is read as within ten per cent.

Its seconds and bytes are those of 100 queries with 100 corruptions on a GPU of 8 GB: only such a sweep rules
on them.
"""

from __future__ import annotations

from typing import Any

from perfsweep.workloads import toggles as shared
from perfsweep.workloads.api import LevelValue
from perfsweep.workloads.claims import Report

SOURCE = "Prover report"
_REPORT = Report(SOURCE)
_word, _fact, _about, _claim = _REPORT.word, _REPORT.fact, _REPORT.about, _REPORT.claim


_REPORTED: dict[str, Any] = {
    "setting": {"queries": (100,), "corruptions": (100,), "modes": ("head", "tail", "both")}
}
_ON_THEIR_GPU: dict[str, Any] = {"unsupported": shared.needs_cuda, **_REPORTED}
_SMALL: dict[str, Any] = {"setting": {"queries": (6,), "corruptions": (8,)}}
_ALL_AT_ONCE: dict[str, LevelValue] = {"slab_size": "all"}
_SLAB: dict[str, LevelValue] = {"slab_size": 512}
_COMPILED: dict[str, LevelValue] = {**_SLAB, "compile": "reduce_overhead"}
_FIXED: dict[str, LevelValue] = {**_COMPILED, "pad_to_slab": "done_row", "warmup": "exact"}
# A kernel of our own makes the copies alone much faster.
_BY_TORCH: dict[str, LevelValue] = {"expand_kernel": "torch"}
_STOPPED: dict[str, LevelValue] = {**_SLAB, "early_exit_all": "sync"}

_COMPILE_S = "~20-30s per unique batch size"
_NO_PAD = "Batch size 110 (no pad): 2.97s # SLOW - triggers recompilation!"
_WARMUP_S = "Warmup/Compile: 5.49s"
_AT_512 = "Batch size 512: 0.208s, 0.41 ms/query"
_PER_CANDIDATE = "Per candidate: 1.80 ms"
_REPEATED = "Batch size 512 (repeated): 0.27s; Batch size 512 (varied): 1.02s"
_SLOWDOWN = (
    "Repeated query (2 steps): 0.16s; Varied queries (avg 5 steps, max 20): 0.9s; 5.6x slowdown due to wasted"
    " computation on done queries"
)
_SAME_TIME = "regardless of how many queries are done!"
_FIRST_STEPS = "Step 0: 0/512 done, time=81ms; Step 1: 294/512 done, time=46ms"
_NOT_SHALLOWER = "Reduce max_depth for Evaluation: SHOULD NOT DO THIS; CHANGES THE SEMANTICS"
_SHALLOWER = "Consider max_depth=10 for faster evaluation if accuracy permits"

_MEMORY = (
    _fact(
        "Issue 1",
        "100 × (1 + 100) = 10,100 candidates",
        _ALL_AT_ONCE,
        "candidates/modes",
        10_100,
        10_100,
        **_REPORTED,
    ),
    _about(
        "Issue 1",
        "Tensor allocation of [10100, 120, 26, 3] for derived states; Memory requirement: ~12 GB (exceeds 8"
        " GB GPU)",
        _ALL_AT_ONCE,
        "derived_states_bytes",
        12e9,
        **_REPORTED,
    ),
    _claim(
        "Issue 1",
        "Process queries in chunks of fixed_batch_size (default: 512)",
        _SLAB,
        against=_ALL_AT_ONCE,
        kind="memory",
        high=1.0,
        **_REPORTED,
    ),
    _word(
        "slower",
        "Issue 1",
        "compute_optimal_batch_size() caps at 512 for best throughput",
        *({"slab_size": size} for size in (256, 1024)),
        against=_SLAB,
        **_ON_THEIR_GPU,
    ),
)

_RECOMPILATION = (
    _fact(
        "Issue 2",
        _COMPILE_S,
        _COMPILED,
        "recompile_s",
        20,
        30,
        contradicts=f"{_NO_PAD}; {_WARMUP_S}",
        **_ON_THEIR_GPU,
    ),
    _fact(
        "Issue 2",
        "Each unique batch size triggers a full recompilation",
        _COMPILED,
        "recompiles_after_warmup",
        1,
        **_REPORTED,
    ),
    _about(
        "Issue 2", _NO_PAD, _COMPILED, "recompile_s", 2.97 - 0.27, contradicts=_COMPILE_S, **_ON_THEIR_GPU
    ),
    _about(
        "Issue 2", _REPEATED, _FIXED, "varied_over_short", 1.02 / 0.27, contradicts=_SLOWDOWN, **_ON_THEIR_GPU
    ),
    _fact(
        "Issue 2",
        "Warmup uses the same size that evaluation will use",
        _FIXED,
        "recompiles_after_warmup",
        high=0,
    ),
)

_SIZES = (
    *(
        _claim(
            "Issue 3",
            text,
            {"slab_size": size},
            against=_SLAB,
            low=0.9 * 0.41 / ms,
            high=1.1 * 0.41 / ms,
            **_ON_THEIR_GPU,
        )
        for size, ms, text in (
            (100, 0.79, "Batch size 100: 0.079s, 0.79 ms/query"),
            (256, 0.47, "Batch size 256: 0.122s, 0.47 ms/query"),
            (1024, 3.37, "Batch size 1024: 3.450s, 3.37 ms/query: 8x slower per query!"),
        )
    ),
    _about("Issue 3", _AT_512, _FIXED, "ms_per_candidate", 0.41, contradicts=_PER_CANDIDATE, **_ON_THEIR_GPU),
    _about(
        "Issue 3",
        "At B=1024: ~75 MB per tensor, multiple such tensors",
        {"slab_size": 1024},
        "derived_states_bytes",
        75e6,
        **_REPORTED,
    ),
    _word(
        "faster",
        "Issue 3",
        "Cap compute_optimal_batch_size() at 512 for optimal throughput",
        {"slab_size": "auto", "slab_search": "ladder"},
        against=_ALL_AT_ONCE,
        **_REPORTED,
    ),
)

_NO_EARLY_EXIT = (
    _about(
        "Issue 4",
        _FIRST_STEPS,
        _FIXED,
        "first_step_over_second",
        81 / 46,
        contradicts=_SAME_TIME,
        **_ON_THEIR_GPU,
    ),
    _about("Issue 4", "Step 1: 294/512 done", _SLAB, "done_after_step_1", 294, **_REPORTED),
    _fact(
        "Issue 4",
        "Step 11: 502/512 done: 98% done!",
        _SLAB,
        "done_after_step_11",
        0.9 * 502,
        512,
        **_REPORTED,
    ),
    _fact("Issue 4", "Step 19: 512/512 done", _SLAB, "done_after_step_19", 512, 512, **_REPORTED),
    _fact("Issue 4", "Early exit at step 19", _STOPPED, "steps/slabs", 18, 20, **_REPORTED),
    _word(
        "faster",
        "Issue 4",
        "the early exit once all queries are done",
        *({"early_exit_all": value} for value in ("sync", "every_k", "async_lag1")),
    ),
    _fact("Issue 4", _SAME_TIME, {"skip_done": "none"}, "step_ms_slope", high=0.1, contradicts=_FIRST_STEPS),
    _fact(
        "Issue 4",
        "Each step takes ~42-45ms",
        _FIXED,
        "seconds_per_iteration",
        0.042,
        0.045,
        contradicts=_FIRST_STEPS,
        **_ON_THEIR_GPU,
    ),
    _about(
        "Issue 4",
        "Varied queries (avg 5 steps, max 20): ALL B queries on every step, even if most are already done",
        _SLAB,
        "row_steps_over_useful",
        20 / 5,
        **_REPORTED,
    ),
    _about(
        "Issue 4",
        _SLOWDOWN,
        _SLAB,
        "varied_over_short",
        5.6,
        against=_BY_TORCH,
        contradicts=_REPEATED,
        **_REPORTED,
    ),
    _word(
        "major",
        "Issue 4",
        "No Per-Query Early Exit (Major Performance Issue)",
        *({"skip_done": "where_mask"}, {"skip_done": "compact"}, {"expand_kernel": "triton"}),
    ),
)

_PERFORMANCE = (
    _about(
        "Current performance", _WARMUP_S, _FIXED, "compile_s", 5.49, contradicts=_COMPILE_S, **_ON_THEIR_GPU
    ),
    _about("Current performance", "Evaluation: 18.19s", _FIXED, "evaluation_s", 18.19, **_ON_THEIR_GPU),
    _about("Current performance", "Total: 23.68s", _FIXED, "compile_s+evaluation_s", 23.68, **_ON_THEIR_GPU),
    _about(
        "Current performance",
        "Per original query: 181.9 ms",
        _FIXED,
        "evaluation_s/queries",
        0.1819,
        **_ON_THEIR_GPU,
    ),
    _about(
        "Current performance",
        _PER_CANDIDATE,
        _FIXED,
        "ms_per_candidate",
        1.80,
        contradicts=_AT_512,
        **_ON_THEIR_GPU,
    ),
    _fact(
        "Current performance",
        "10,100 total candidates (100 queries × 101 candidates × 1 mode)",
        _SLAB,
        "candidates/modes",
        10_100,
        10_100,
        **_REPORTED,
    ),
    _fact("Current performance", "20 chunks of 512 (with padding)", _SLAB, "slabs/jobs", 20, 20, **_REPORTED),
    _about(
        "Current performance",
        "~0.9s per chunk × 20 = 18s",
        _FIXED,
        "evaluation_s*jobs/slabs",
        0.9,
        **_ON_THEIR_GPU,
    ),
    _about(
        "Current performance",
        "Each chunk runs ~20 steps × ~45ms/step ≈ 0.9s",
        _SLAB,
        "steps/slabs",
        20,
        **_REPORTED,
    ),
)

_FUTURE = (
    _claim(
        "Future 1",
        "Per-Query Early Exit (High Impact - est. 2-4x speedup)",
        *({"skip_done": "where_mask"}, {"skip_done": "compact"}, {"expand_kernel": "triton"}),
        low=2.0,
        high=4.0,
    ),
    _fact(
        "Future 1",
        "CUDA graphs require static shapes, so (b) won't work with reduce-overhead",
        {**_COMPILED, "skip_done": "compact"},
        "cudagraph_recordings",
        None,
        0,
    ),
    _word(
        "moderate",
        "Future 2",
        "Smaller Default Batch Size (Medium Impact): 256 for small evaluations (faster warmup)",
        {"slab_size": 256},
        against={**_SLAB, "pad_to_slab": "done_row"},
        **_SMALL,
    ),
    _word(
        "faster",
        "Future 2",
        "512 for large evaluations (better throughput)",
        _SLAB,
        against={"slab_size": 256},
        **_REPORTED,
    ),
    _claim(
        "Future 3",
        "PyTorch's torch.compile caches are per-process. Consider an explicit cache directory",
        {"compile": "default", "compile_cache": "shared"},
        {"compile_cache": "shared"},
        kind="predicate",
        figure="warm_compile_s/compile_s",
        high=0.5,
    ),
    _claim("Future 4", _NOT_SHALLOWER, kind="predicate", contradicts=_SHALLOWER),
    _word(
        "faster",
        "Future 5",
        "Could pre-generate all corruptions as one tensor operation",
        {"corruptions": "all"},
        contradicts="No, potentially there are millions of negatives",
    ),
    _claim(
        "Future 5",
        "No, potentially there are millions of negatives",
        {"corruptions": "all"},
        kind="memory",
        low=1.0,
        contradicts="Could pre-generate all corruptions as one tensor operation",
    ),
    _word(
        "faster",
        "Future 6",
        "Fused kernels for fact/rule matching",
        *({"fact_index": "csr"}, {"compaction": "scan"}, {"expand_kernel": "triton"}),
    ),
    _word(
        "faster",
        "Future 6",
        "Better memory layout for coalesced access",
        *({"index_dtype": "int32"}, {"index_dtype": "int16"}),
    ),
    _word(
        "faster",
        "Future 6",
        "Reduced padding overhead",
        *({"pack_width": "tight"}, {"rule_pairs": "exact"}, {"rule_pairs": "ragged"}),
        *({"policy_rows": "row_budget"}, {"policy_rows": "ragged"}),
    ),
)

_RECOMMENDATIONS = (
    _word(
        "faster",
        "Recommendation 1",
        "Use mode='reduce-overhead' for production (faster after warmup)",
        {"compile": "reduce_overhead"},
    ),
    _fact(
        "Recommendation 2",
        "Use mode='default' for debugging (no CUDA graph restrictions)",
        {"compile": "default"},
        "cudagraph_recordings",
        high=0,
    ),
    _fact(
        "Recommendation 3",
        "Always warmup before timing evaluation",
        _FIXED,
        "recompiles_after_warmup",
        high=0,
    ),
    _fact(
        "Recommendation 4",
        "Use fixed_batch_size=512 for 8GB GPUs",
        _SLAB,
        "predicted_bytes",
        high=8e9,
        **_REPORTED,
    ),
    _claim("Recommendation 5", _SHALLOWER, kind="predicate", contradicts=_NOT_SHALLOWER),
)

CLAIMS = (*_MEMORY, *_RECOMPILATION, *_SIZES, *_NO_EARLY_EXIT, *_PERFORMANCE, *_FUTURE, *_RECOMMENDATIONS)
