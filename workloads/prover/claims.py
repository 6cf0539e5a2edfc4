"""What the field report says, as data. "About" in it is read as within ten per cent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workloads import toggles as shared
from workloads.api import Claim, LevelValue

SOURCE = "Prover report"


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
_REPORTED: dict[str, Any] = {
    "setting": {"queries": (100,), "corruptions": (100,), "modes": ("head", "tail", "both")}
}
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
        **_REPORTED,
    ),
    _claim(
        "Issue 1",
        "chunks of a fixed size fit where all candidates at once do not",
        _SLAB,
        kind="memory",
        high=1.0,
    ),
    _fact(
        "Issue 2", "each new batch size compiles for 20 to 30 s", _COMPILED, "recompile_s", 20, 30, **_ON_CUDA
    ),
    _claim(
        "Issue 2",
        "a chunk padded to the size already compiled takes 0.27 s, one of a new size 2.97 s",
        *({"pad_to_slab": value} for value in ("copy_last", "done_row")),
        against=_COMPILED,
        low=0.9 * 2.97 / 0.27,
        high=1.1 * 2.97 / 0.27,
    ),
    _fact(
        "Issue 2",
        "varied rows of a size already compiled take 1.02 s where repeated ones take 0.27 s",
        _FIXED,
        "varied_over_short",
        0.9 * 1.02 / 0.27,
        1.1 * 1.02 / 0.27,
    ),
    _fact(
        "Issue 2",
        "warming up with the very size leaves nothing to compile",
        _FIXED,
        "recompiles_after_warmup",
        high=0,
    ),
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
    _word(
        "faster",
        "Issue 3",
        "choosing the size by memory finds the best one",
        {"slab_size": "auto", "slab_search": "ladder"},
    ),
    _fact(
        "Issue 4",
        "a step costs the same however many rows are done",
        {"skip_done": "none"},
        "step_ms_slope",
        high=0.1,
    ),
    _fact(
        "Issue 4",
        "each step takes 42 to 45 ms",
        _FIXED,
        "seconds_per_iteration",
        0.042,
        0.045,
        **_ON_CUDA,
        **_REPORTED,
    ),
    _fact(
        "Issue 4",
        "rows need 5 steps of 20 on average, and all are computed",
        _SLAB,
        "row_steps_over_useful",
        3.6,
        4.4,
    ),
    _fact(
        "Issue 4", "varied queries take 5.6 times as long as short ones", _SLAB, "varied_over_short", 5.0, 6.2
    ),
    _word(
        "faster",
        "Issue 4",
        "stopping once all rows are done saves the rest of the steps",
        *({"early_exit_all": value} for value in ("sync", "every_k", "async_lag1")),
    ),
    _fact(
        "Current performance",
        "warming up and compiling takes 5.49 s",
        _FIXED,
        "compile_s",
        4.94,
        6.04,
        **_ON_CUDA,
        **_REPORTED,
    ),
    _fact(
        "Current performance",
        "10,100 candidates make 20 chunks of 512",
        _SLAB,
        "slabs/jobs",
        20,
        20,
        **_REPORTED,
    ),
    _fact(
        "Current performance",
        "1.80 ms per candidate, so 181.9 ms per query and 18.19 s in all",
        _FIXED,
        "ms_per_candidate",
        1.62,
        1.98,
        **_ON_CUDA,
        **_REPORTED,
    ),
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
        "cudagraph_recordings",
        None,
        0,
    ),
    _word(
        "moderate",
        "Future 2",
        "256 rows suit small evaluations and 512 large ones",
        {"slab_size": 256},
        {"slab_size": 512},
    ),
    _claim(
        "Future 3",
        "a cache on disk saves compiling in every process",
        {"compile": "default", "compile_cache": "shared"},
        {"compile_cache": "shared"},
        kind="predicate",
        figure="warm_compile_s/compile_s",
        high=0.5,
    ),
    _claim(
        "Future 4", "fewer steps per query would be faster and change what is evaluated", kind="predicate"
    ),
    _word(
        "faster", "Future 5", "corruptions of all chunks can be drawn as one tensor", {"corruptions": "all"}
    ),
    _claim(
        "Future 5",
        "corruptions of all chunks can be too many to hold",
        {"corruptions": "all"},
        kind="memory",
        low=1.0,
    ),
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
    _word(
        "faster",
        "Recommendation 1",
        "reduce-overhead is the faster mode once warm",
        {"compile": "reduce_overhead"},
    ),
    _fact(
        "Recommendation 2",
        "the default mode has no graphs to restrict it",
        {"compile": "default"},
        "cudagraph_recordings",
        high=0,
    ),
    _fact(
        "Recommendation 3",
        "a warm-up before timing leaves nothing to compile",
        _FIXED,
        "recompiles_after_warmup",
        high=0,
    ),
    _word("faster", "Recommendation 4", "512 rows suit a GPU of 8 GB", _SLAB),
    _claim("Recommendation 5", "half the steps suffice if accuracy permits", kind="predicate"),
)
