"""Toggles and claims of Probe1D: a two-parameter logistic regression for every (latent, class) pair.

"About" in a report is read as within ten per cent.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from workloads import toggles as shared
from workloads.api import Baseline, Check, Claim, Comparator, Level, Levels, LevelValue, Numbers, Parity, Toggle

SOURCE = "Probe1D report"
IDENTICAL = {"loss": 0.0}
REORDERED = {"loss": 1e-5}  # float32 sums in another order
SAME_OPTIMUM = {"loss": math.inf}  # the naive reference is not at the optimum, so only the oracle can judge
ITERATED = ("late", "naive")  # solvers that pass over slabs in chunks of events


@dataclass
class Config:
    """What refusals depend on."""

    latents: int = 1024
    classes: int = 151
    memory_budget_mb: float | None = None


CHECKS = (
    Check("loss", Comparator.RELATIVE, excused="unidentified"),
    Check("gradient_max", Comparator.AT_MOST, 1.01e-6, against="oracle"),
    Check("excess_loss_max", Comparator.AT_MOST, 1e-5, against="oracle"),
    Check("excess_loss_mean", Comparator.AT_MOST, 5e-7, against="oracle"),
    Check("confusion_mismatches", Comparator.AT_MOST, 0.0, against="oracle"),
)


def _slab_memory(config: Config, levels: Levels) -> str | None:
    """State of a slab and temporaries of a chunk, in float32, against the budget."""
    if config.memory_budget_mb is None or levels["solver"] == "newton":
        return None
    slab, events = levels["slab_size"], levels["chunk_events"]
    width = config.classes if isinstance(slab, str) else min(int(slab), config.classes)
    rows = 35 * config.latents + 12 * (int(events) if not isinstance(events, str) else 32768)
    need_mb, most = rows * width * 4 / 1e6, int(config.memory_budget_mb * 1e6 / (rows * 4))
    if need_mb <= config.memory_budget_mb:
        return None
    return f"it needs about {need_mb:.0f} MB and workload.memory_budget_mb={config.memory_budget_mb:g} holds {most} classes"


def _tolerance(value: LevelValue, **own: Any) -> Level:
    return Level(value, parity=Parity.TOLERANCE, bounds=SAME_OPTIMUM, **own)


def _on(**own: Any) -> tuple[Level, ...]:
    return Level("off"), Level("on", **own)


_ITERATED: dict[str, Any] = {"requires": {"solver": ITERATED}}
_WITHOUT_LABELS: dict[str, Any] = {"requires": {"label_free": ("on",)}}
_SORTED: dict[str, Any] = {"requires": {"csc_layout": ("on",)}}
_ACTIVE: dict[str, Any] = {"requires": {"csc_layout": ("on",), "consistent_stop": ("scaled",)}, "witness": "compacted_pairs"}
_COMPRESSED: dict[str, Any] = {
    "requires": {"label_free": ("on",), "csc_layout": ("on",), "active_set": ("pair", "latent")},
    "witness": "nodes",
}
_CHUNKED: dict[str, Any] = {**_ITERATED, "bounds": REORDERED, "witness": "chunks"}
_FROZEN: dict[str, Any] = {**_ITERATED, "witness": "frozen_pairs"}

TOGGLES = (
    Toggle(
        "solver",
        (Level("naive"), _tolerance("late", witness="late_passes"), _tolerance("newton", witness="newton_passes")),
        "the report's Levenberg-Marquardt loop, its later form, or Newton accepted by slope",
        "Context",
    ),
    Toggle(
        "skip_zero_grad",
        (
            Level("off"),
            Level("exact", bounds=IDENTICAL, witness="skipped_zero_grad", **_ITERATED),
            _tolerance("tol", witness="skipped_zero_grad", **_ITERATED),
        ),
        "leave pairs with zero gradient out of the damping retries",
        "Ideas to try",
    ),
    Toggle(
        "cache_row_idx",
        _on(bounds=IDENTICAL, witness="row_index_builds", **_ITERATED),
        "build the chunk plan and row indices once",
        "Ideas to try",
    ),
    Toggle(
        "cast_once", _on(bounds=IDENTICAL, witness="bytes_cast"), "cast the values to the compute type at load", "Ideas to try"
    ),
    Toggle(
        "chunk_events",
        (Level(32768), *(Level(value, **_CHUNKED) for value in (2**18, 2**20, 2**22, "auto"))),
        "events per chunk; auto fits the last-level cache",
        "Ideas to try",
        Numbers(32, like=Level(0, **_CHUNKED)),
    ),
    shared.slab_size(
        *(8, 1, 4, 32, "all"),
        every={"refused": _slab_memory, "bounds": REORDERED, "witness": "slabs"},
        each={8: {"refused": _slab_memory}},
        source="Ideas to try",
    ),
    Toggle(
        "freeze_failed",
        (Level(0), _tolerance(3, **_FROZEN)),
        "freeze a pair after this many failed steps in a row",
        "Ideas to try",
        Numbers(1, 1000, _tolerance(0, **_FROZEN)),
    ),
    Toggle(
        "active_set",
        (Level("off"), _tolerance("latent", **_ACTIVE), _tolerance("pair", **_ACTIVE)),
        "freeze and compact what has converged",
    ),
    Toggle(
        "timing_hook",
        (Level("off"), Level("on", witness="hook_records"), Level("profiler", witness="profiler_samples")),
        "time each slab pass by a hook, or under a full profiler",
        "Ideas to try",
    ),
    Toggle("no_sync_log", _on(witness="host_syncs"), "keep log values on the device", "Suspected bottlenecks"),
    Toggle(
        "precision",
        (
            Level("f32"),
            _tolerance("f64", witness="events_f64"),
            _tolerance("f32acc64", witness="sums_acc64"),
            _tolerance("block", witness="sums_block", **_SORTED),
        ),
        "type of the products and of the accumulators",
        "Open questions",
    ),
    Toggle(
        "label_free",
        _on(requires={"solver": ("late", "newton")}, bounds=REORDERED, witness="label_gathers"),
        "label sums once instead of labels in the loop",
    ),
    Toggle(
        "csc_layout",
        _on(bounds=REORDERED, witness="bucket_launches", **_WITHOUT_LABELS),
        "latent-sorted, zero-padded buckets instead of scattered rows",
    ),
    shared.compile("on", every={"requires": {"label_free": ("on",), "csc_layout": ("on",)}, "bounds": REORDERED}),
    Toggle(
        "consistent_stop",
        (
            Level("seed", requires={"solver": ("naive",)}),
            _tolerance("mismatch", requires={"solver": ("late",)}),
            _tolerance("scaled", witness="scaled_tests"),
        ),
        "test activity and stop on the same scaled gradient",
        "Context",
        baselines=(Baseline("mismatch", {"solver": ("late",)}), Baseline("scaled", {"solver": ("newton",)})),
    ),
    Toggle(
        "warm_start", (Level("off"), _tolerance("on", witness="warm_pairs", **_WITHOUT_LABELS)), "start from binary activations"
    ),
    Toggle(
        "qx_stat",
        (
            Level("rms"),
            Level("rms_free", bounds=REORDERED, witness="qx_passes"),
            *(_tolerance(value, witness="metric_changed") for value in ("meanabs", "max", "p95")),
        ),
        "the scale of a latent in the step metric",
        "Open questions",
    ),
    Toggle(
        "compress",
        (Level(0), *(_tolerance(bins, **_COMPRESSED) for bins in (16, 32, 64, 128))),
        "replace the events of a bin by two nodes, then certify",
        numbers=Numbers(4, 4096, _tolerance(0, **_COMPRESSED)),
    ),
    shared.caching_allocator(every={"bounds": IDENTICAL}, source="Profiling plan"),
    Toggle(
        "confusion_search", _on(witness="confusion_searches", **_SORTED), "count predictions by binary search", "Ideas to try"
    ),
)

REFERENCES: dict[str, dict[str, LevelValue]] = {
    "naive": {},
    "late": {"solver": "late"},
    "fixed_stop": {"solver": "late", "consistent_stop": "scaled"},
}

BEST: dict[str, LevelValue] = {
    "solver": "newton",
    "slab_size": "all",
    "active_set": "pair",
    "no_sync_log": "on",
    "precision": "block",
    "label_free": "on",
    "csc_layout": "on",
    "compile": "on",
    "warm_start": "on",
    "qx_stat": "rms_free",
    "compress": 64,
    "confusion_search": "on",
}

CHAIN: tuple[tuple[str, LevelValue], ...] = (
    ("consistent_stop", "scaled"),
    ("skip_zero_grad", "exact"),
    ("cache_row_idx", "on"),
    ("label_free", "on"),
    ("csc_layout", "on"),
    ("compile", "on"),
    ("active_set", "pair"),
    ("warm_start", "on"),
    ("precision", "block"),
    ("compress", 64),
    ("confusion_search", "on"),
)

_LATE_SORTED: dict[str, LevelValue] = {"solver": "late", "label_free": "on", "csc_layout": "on"}

FORBIDDEN: tuple[tuple[dict[str, LevelValue], str], ...] = (
    ({"label_free": "on"}, "solver"),
    ({"solver": "late", "csc_layout": "on"}, "label_free"),
    ({"solver": "newton", "label_free": "on", "compile": "on"}, "csc_layout"),
    ({"precision": "block"}, "csc_layout"),
    ({"solver": "late", "warm_start": "on"}, "label_free"),
    ({**_LATE_SORTED, "active_set": "pair"}, "consistent_stop"),
    ({**_LATE_SORTED, "compress": 64}, "active_set"),
    ({**_LATE_SORTED, "compress": 7}, "active_set"),
    ({"solver": "newton", "confusion_search": "on"}, "csc_layout"),
    ({"solver": "newton", "skip_zero_grad": "exact"}, "solver"),
    ({"solver": "newton", "cache_row_idx": "on"}, "solver"),
    ({"solver": "newton", "chunk_events": 2**20}, "solver"),
    ({"solver": "newton", "chunk_events": 1000}, "solver"),
    ({"solver": "newton", "freeze_failed": 3}, "solver"),
    ({"solver": "late", "consistent_stop": "seed"}, "solver"),
    ({"solver": "newton", "consistent_stop": "mismatch"}, "solver"),
    ({"consistent_stop": "mismatch"}, "solver"),
)

REFUSED_BY_CONFIG: tuple[tuple[Config, dict[str, LevelValue], str], ...] = (
    (Config(memory_budget_mb=100), {"slab_size": "all"}, "memory_budget_mb"),
    (Config(memory_budget_mb=100), {"slab_size": 100}, "memory_budget_mb"),
    (Config(memory_budget_mb=5), {}, "memory_budget_mb"),
)


def _claim(section: str, text: str, *arms: Mapping[str, LevelValue], **judged: Any) -> Claim:
    return Claim(text, SOURCE, section, arms, **judged)


def _word(word: str, section: str, text: str, *arms: Mapping[str, LevelValue]) -> Claim:
    return _claim(section, text, *arms, kind="qualitative", word=word)


def _naive_has(section: str, text: str, figure: str, low: float, high: float | None = None, **more: Any) -> Claim:
    return _claim(section, text, {"solver": "naive"}, kind="predicate", figure=figure, low=low, high=high, **more)


_ON_CUDA: dict[str, Any] = {"unsupported": shared.needs_cuda}
_CONTEXT, _SUSPECTED, _IDEAS, _OPEN = "Context", "Suspected bottlenecks", "Ideas to try", "Open questions"

CLAIMS = (
    _naive_has(_CONTEXT, "a pass over the first slab of eight classes takes about 35 s", "slab_pass_s", 31.5, 38.5, **_ON_CUDA),
    _naive_has(_CONTEXT, "19 slabs of 151 classes run 100 passes each: about 18 hours", "slab_passes", 1900, 1900),
    _naive_has(_CONTEXT, "passes end with failed steps where the gradient is zero already", "n_fail", 1),
    _naive_has(_SUSPECTED, "row indices are built anew in every pass", "row_index_builds", 1),
    _naive_has(_SUSPECTED, "pairs with zero gradient keep the damping at its cap", "lambda_max_dead", 1e12),
    _naive_has(_SUSPECTED, "all values are cast to the compute type in every pass", "bytes_cast", 1),
    _naive_has(_SUSPECTED, "debug logging waits for the device even where it prints nothing", "device_syncs", 1, **_ON_CUDA),
    _word("faster", _SUSPECTED, "waiting for the device stalls its kernels", {"no_sync_log": "on"}),
    _word(
        "faster",
        _IDEAS,
        "inert latents that leave before the step save its retries",
        {"skip_zero_grad": "exact"},
        {"skip_zero_grad": "tol"},
    ),
    _word("faster", _IDEAS, "row indices can be reused by statistics, loss and confusion", {"cache_row_idx": "on"}),
    _word("faster", _IDEAS, "confusion counts need no row indices of their own", {"confusion_search": "on"}),
    _word("faster", _IDEAS, "casting once avoids copies", {"cast_once": "on"}),
    _word("faster", _IDEAS, "larger slabs share a traversal among more classes", *({"slab_size": size} for size in (32, "all"))),
    _word(
        "faster",
        _IDEAS,
        "larger row batches share the cost of a traversal",
        *({"chunk_events": events} for events in (2**18, 2**20, 2**22, "auto")),
    ),
    _word("faster", _IDEAS, "pairs that fail a few times in a row can be given up", {"freeze_failed": 3}),
    _word("none", _IDEAS, "a hook times slabs without the cost of a profiler", {"timing_hook": "on"}),
    _word("slower", _IDEAS, "a full profiler has a cost that a hook avoids", {"timing_hook": "profiler"}),
    _word(
        "faster",
        _OPEN,
        "a cheaper scale than the root mean square saves passes over the data",
        *({"qx_stat": value} for value in ("rms_free", "meanabs", "max", "p95")),
    ),
    _claim(
        _OPEN,
        "float64 accumulators remove what makes the step fail",
        {"precision": "f32acc64"},
        kind="predicate",
        figure="n_fail",
        high=0,
    ),
    _claim(
        "Profiling plan",
        "without the caching allocator every allocation shows in a profile",
        {"caching_allocator": "off"},
        kind="predicate",
        figure="device_allocations",
        low=1,
    ),
)
