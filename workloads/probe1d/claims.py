"""What the Probe1D report says, section by section and in its own words, as data.

"About" in it is read as within ten per cent. Its seconds are those of its own data on its own GPU, and its
counts those of data with as many latents that nothing moves: only such a sweep rules on them.
"""

from __future__ import annotations

from typing import Any

from perfsweep.workloads import toggles as shared
from perfsweep.workloads.api import Claim
from perfsweep.workloads.claims import Arm, Report

REPORT = "field report 000: Probe1D Performance"
_REPORT = Report(REPORT)
_word, _fact, _about = _REPORT.word, _REPORT.fact, _REPORT.about
CONTEXT, SUSPECTED, IDEAS, OPEN, PLAN = (
    "Context",
    "Suspected bottlenecks",
    "Ideas to try",
    "Open questions",
    "Profiling plan",
)


_NAIVE: Arm = {"solver": "naive"}
_ON_CUDA: dict[str, Any] = {"unsupported": shared.needs_cuda}
_FULL: dict[str, Any] = {"data": ("full",), "slabs": (None,)}
_PASSES: dict[str, Any] = {"max_iter": (None, 100)}
# Data of 151 classes, and data with as many pairs that nothing moves.
_CLASSES: dict[str, Any] = {"setting": {"data": ("demo", "setA", "occurring", "full"), "slabs": (None,)}}
_DEAD: dict[str, Any] = {"setting": {"data": ("full", "nfail"), **_PASSES}}
_NARROW: dict[str, Any] = {
    "setting": {"storage_dtype": ("float16", "float64")}
}  # a cast to the type already there is none

_CONTEXT = (
    _about(
        CONTEXT,
        "each LM iteration for the first class_slab_size = 8 block taking about 35 s",
        _NAIVE,
        "seconds_per_iteration",
        35,
        **_ON_CUDA,
        setting=_FULL,
    ),
    _fact(
        CONTEXT,
        "With 151 classes we run roughly 19 slabs",
        _NAIVE,
        "slabs/jobs",
        0.9 * 19,
        1.1 * 19,
        **_CLASSES,
    ),
    _about(
        CONTEXT,
        "at max_iter = 100 that is 19 x 100 x 35 s ≈ 18 hours if nothing speeds up",
        _NAIVE,
        "seconds_per_iteration*slab_passes/jobs",
        18 * 3600,
        **_ON_CUDA,
        setting={**_FULL, **_PASSES},
    ),
    _about(
        CONTEXT,
        "at max_iter = 100 that is 19 x 100 passes",
        _NAIVE,
        "slab_passes/slabs",
        100,
        setting={**_FULL, **_PASSES},
    ),
    _about(
        CONTEXT,
        "almost every iteration still loops with n_fail ≈ 935 LM fallbacks",
        _NAIVE,
        "n_fail/failing_passes",
        935,
        setting={**_FULL, **_PASSES},
    ),
    _fact(
        CONTEXT,
        "almost every iteration still loops with LM fallbacks",
        _NAIVE,
        "failing_passes/slab_passes",
        0.9,
        1.0,
        **_DEAD,
    ),
    _fact(
        CONTEXT,
        "LM fallbacks where gradients are already zero",
        {"skip_zero_grad": "exact"},
        "n_fail",
        high=0,
        **_DEAD,
    ),
)

_SUSPECTED = (
    _fact(
        SUSPECTED,
        "_compute_slab_stats and _compute_loss_slab rebuild sparse row indices for every slab; the chunker"
        " allocates new tensors each pass",
        _NAIVE,
        "row_index_builds/slab_passes",
        1,
    ),
    _word("faster", SUSPECTED, "a bottleneck: rebuilding sparse row indices", {"cache_row_idx": "on"}),
    _fact(
        SUSPECTED,
        "The LM step treats zero-gradient coordinates as failures, so the damping loop keeps the lambda"
        " schedule saturated",
        _NAIVE,
        "lambda_max_dead",
        9.9e11,  # the cap is 1e12, and the largest float32 below it is what the solver reaches
    ),
    _fact(
        SUSPECTED,
        "The code converts the full CSR value tensor to self.compute_dtype on every pass, creating redundant"
        " copies",
        _NAIVE,
        "casts/slab_passes",
        1,
        **_NARROW,
    ),
    _word(
        "faster",
        SUSPECTED,
        "a bottleneck: converting the full CSR value tensor on every pass",
        {"cast_once": "on"},
        **_NARROW,
    ),
    _word(
        "faster",
        SUSPECTED,
        "Debug logging forces torch.cuda.synchronize, which may stall kernels even when no debug output is"
        " emitted",
        {"no_sync_log": "on"},
        **_ON_CUDA,
    ),
)

_IDEAS = (
    _word(
        "faster",
        IDEAS,
        "Skip zero-gradient coordinates so inert latents exit early instead of triggering fallbacks",
        {"skip_zero_grad": "exact"},
        {"skip_zero_grad": "tol"},
    ),
    _word("faster", IDEAS, "Cache row indices per slab and reuse them", {"cache_row_idx": "on"}),
    _word("faster", IDEAS, "reuse them across _compute_confusion_slab", {"confusion_search": "on"}),
    _word(
        "faster",
        IDEAS,
        "Avoid redundant casts by storing CSR values in self.compute_dtype once",
        {"cast_once": "on"},
        **_NARROW,
    ),
    _word(
        "faster",
        IDEAS,
        "Tune class_slab_size to amortize traversal overhead if memory allows",
        {"slab_size": 32},
        {"slab_size": "all"},
    ),
    _word(
        "faster",
        IDEAS,
        "Tune row_batch_size to amortize traversal overhead if memory allows",
        *({"chunk_events": events} for events in (2**18, 2**20, 2**22, "auto")),
    ),
    _word(
        "faster",
        IDEAS,
        "Stop increasing lambda for coordinates that repeatedly fail; mark them converged",
        {"freeze_failed": 3},
    ),
    _word(
        "negligible",
        IDEAS,
        "instrumentation hooks that record per-slab timing without the overhead of full profiling",
        {"timing_hook": "on"},
    ),
    _word("slower", IDEAS, "the overhead of full profiling", {"timing_hook": "profiler"}),
)

_OPEN = (
    _word(
        "faster",
        OPEN,
        "a cheaper statistic than RMS for qx that preserves stability but avoids extra passes over the data",
        *({"qx_stat": value} for value in ("rms_free", "meanabs", "max", "p95")),
    ),
    _fact(
        OPEN,
        "Would mixed precision (weights float32, accumulators float64) remove the residual numerical issues"
        " that trigger LM fallback?",
        {"precision": "f32acc64"},
        "n_fail",
        high=0,
        **_DEAD,
    ),
)

_PLAN = (
    _word(
        "slower",
        PLAN,
        "Set PYTORCH_NO_CUDA_MEMORY_CACHING=1 during profiling to make GPU allocations obvious in the"
        " timeline",
        {"caching_allocator": "off"},
        **_ON_CUDA,
    ),
    Claim(
        "a smaller shard such as 1k rows, 256 classes on a real subset of data", REPORT, PLAN, (), "predicate"
    ),
)

CLAIMS = (*_CONTEXT, *_SUSPECTED, *_IDEAS, *_OPEN, *_PLAN)
