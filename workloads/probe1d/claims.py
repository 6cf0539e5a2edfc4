"""What the Probe1D report says, section by section, as data. "About" in it is read as within ten per cent.

Its seconds are those of its own data on its own GPU, so a device without CUDA rules on none of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workloads import toggles as shared
from workloads.api import Claim, LevelValue

REPORT = "field report 000: Probe1D Performance"
CONTEXT, SUSPECTED, IDEAS, OPEN, PLAN = (
    "Context",
    "Suspected bottlenecks",
    "Ideas to try",
    "Open questions",
    "Profiling plan",
)

Arm = Mapping[str, LevelValue]


def _word(word: str, section: str, text: str, *arms: Arm, **more: Any) -> Claim:
    return Claim(text, REPORT, section, arms, kind="qualitative", word=word, **more)


def _fact(
    section: str,
    text: str,
    arm: Arm,
    figure: str,
    low: float | None = None,
    high: float | None = None,
    **more: Any,
) -> Claim:
    return Claim(text, REPORT, section, (arm,), kind="predicate", figure=figure, low=low, high=high, **more)


_NAIVE: Arm = {"solver": "naive"}
_ON_CUDA: dict[str, Any] = {"unsupported": shared.needs_cuda}
_FULL: dict[str, Any] = {**_ON_CUDA, "setting": {"data": ("full",)}}
_DEAD: dict[str, Any] = {"setting": {"data": ("full", "nfail")}}  # data with as many pairs that nothing moves
_ALL_PASSES: dict[str, Any] = {"setting": {"max_iter": (None, 100)}}
_NARROW: dict[str, Any] = {
    "setting": {"storage_dtype": ("float16", "float64")}
}  # a cast to the type already there is none

_CONTEXT = (
    _fact(
        CONTEXT,
        "each pass over the first slab of 8 classes takes about 35 s",
        _NAIVE,
        "seconds_per_iteration",
        31.5,
        38.5,
        **_FULL,
    ),
    _fact(
        CONTEXT,
        "each of the 19 slabs of 151 classes takes all 100 passes",
        _NAIVE,
        "slab_passes/slabs",
        90,
        110,
        **_ALL_PASSES,
    ),
    _word(
        "faster",
        CONTEXT,
        "19 slabs at 100 passes of 35 s make 18 hours if nothing speeds up",
        {"consistent_stop": "scaled"},
        {"solver": "late"},
    ),
    _fact(
        CONTEXT,
        "almost every pass ends with some 935 failed steps",
        _NAIVE,
        "n_fail/failing_passes",
        841.5,
        1028.5,
        **_DEAD,
    ),
    _fact(
        CONTEXT,
        "almost every pass has failed steps",
        _NAIVE,
        "failing_passes/slab_passes",
        0.9,
        1.0,
        **_ALL_PASSES,
    ),
    _fact(
        CONTEXT,
        "steps fail where the gradient is zero already, and nowhere else",
        {"skip_zero_grad": "exact"},
        "n_fail",
        high=0,
    ),
)

_SUSPECTED = (
    _fact(
        SUSPECTED,
        "row indices are built anew for every slab on every pass",
        _NAIVE,
        "row_index_builds/slab_passes",
        1,
    ),
    _word("faster", SUSPECTED, "building row indices anew costs time", {"cache_row_idx": "on"}),
    _fact(
        SUSPECTED,
        "pairs with zero gradient keep the damping at its cap",
        _NAIVE,
        "lambda_max_dead",
        9.9e11,  # the cap is 1e12, and the largest float32 below it is what the solver reaches
    ),
    _fact(
        SUSPECTED,
        "all values are cast to the compute type in every pass",
        _NAIVE,
        "casts/slab_passes",
        1,
        **_NARROW,
    ),
    _word(
        "faster", SUSPECTED, "casting all values on every pass makes redundant copies", {"cast_once": "on"}
    ),
    _word(
        "faster",
        SUSPECTED,
        "debug logging waits for the device and may stall its kernels, even where it prints nothing",
        {"no_sync_log": "on"},
        **_ON_CUDA,
    ),
)

_IDEAS = (
    _word(
        "faster",
        IDEAS,
        "skipping zero-gradient pairs lets inert latents exit early",
        {"skip_zero_grad": "exact"},
        {"skip_zero_grad": "tol"},
    ),
    _word(
        "faster",
        IDEAS,
        "caching row indices over passes and reusing them for loss and statistics",
        {"cache_row_idx": "on"},
    ),
    _word("faster", IDEAS, "confusion counts need no row indices of their own", {"confusion_search": "on"}),
    _word("faster", IDEAS, "storing values in the compute type avoids redundant casts", {"cast_once": "on"}),
    _word(
        "faster",
        IDEAS,
        "more classes per slab amortise the traversal",
        {"slab_size": 32},
        {"slab_size": "all"},
    ),
    _word(
        "faster",
        IDEAS,
        "larger row batches amortise the traversal",
        *({"chunk_events": events} for events in (2**18, 2**20, 2**22, "auto")),
    ),
    _word(
        "faster",
        IDEAS,
        "freezing pairs that fail repeatedly stops their damping from rising",
        {"freeze_failed": 3},
    ),
    _word("negligible", IDEAS, "a timing hook per slab costs next to nothing", {"timing_hook": "on"}),
    _word("slower", IDEAS, "a full profile has a cost that a hook avoids", {"timing_hook": "profiler"}),
)

_OPEN = (
    _word(
        "faster",
        OPEN,
        "a statistic cheaper than the root mean square avoids extra passes over the data",
        *({"qx_stat": value} for value in ("rms_free", "meanabs", "max", "p95")),
    ),
    _fact(
        OPEN,
        "float64 accumulators remove the numerical issues that trigger the fallback",
        {"precision": "f32acc64"},
        "n_fail",
        high=0,
    ),
)

_PLAN = (
    _word(
        "slower",
        PLAN,
        "without the caching allocator every allocation shows, and costs",
        {"caching_allocator": "off"},
        **_ON_CUDA,
    ),
)

CLAIMS = (*_CONTEXT, *_SUSPECTED, *_IDEAS, *_OPEN, *_PLAN)
