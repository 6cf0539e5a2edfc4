"""What can be switched in the probe solver, and what the switches may change.

Declarations only: this module imports neither torch nor the code it describes. Every level but the first
names a *witness*, a counter that differs from the baseline's when the level acts.
"""

from __future__ import annotations

from perfsweep.workloads import toggles as shared
from perfsweep.workloads.api import Baseline, Check, Comparator, Device, Level, Numbers, Parity, Toggle
from perfsweep.workloads.probe1d.claims import CONTEXT, IDEAS, OPEN, PLAN, SUSPECTED

DAMPED = {"solver": ("naive", "late")}
LABEL_FREE = {"label_free": ("on",)}
BY_LATENT = {"label_free": ("on",), "csc_layout": ("on",)}


def needs_native_compiler(device: Device) -> str | None:
    """Reason why the hand-written kernel cannot be built: Triton needs CUDA, the CPU's a C++ compiler."""
    if device.type == "cuda" or device.compiler:
        return None
    return "the native kernel needs a C++ compiler on CPU and none is on PATH"


SOLVER = Toggle(
    "solver",
    (
        Level("naive"),
        Level("late", Parity.TOLERANCE, witness="late_passes"),
        Level(
            "newton",
            Parity.TOLERANCE,
            witness="newton_passes",
            in_code="Newton steps for the pairs that are still active, and a certificate for each pair",
        ),
    ),
    "report-time solver, its later upstream form, or Newton with an active set and certified pairs",
    CONTEXT,
)

SKIP_ZERO_GRAD = Toggle(
    "skip_zero_grad",
    (
        Level("off"),
        Level(
            "exact",
            requires=DAMPED,
            witness="skipped_zero_grad",
            in_code="no retries of pairs whose gradient is zero",
        ),
        Level("tol", Parity.TOLERANCE, requires=DAMPED, witness="skipped_zero_grad"),
    ),
    "leave pairs without a gradient out of the retries",
    IDEAS,
)

CACHE_ROW_IDX = Toggle(
    "cache_row_idx",
    (Level("off"), Level("on", requires=DAMPED, witness="row_index_builds")),
    "build chunk plan and row indices once instead of on every pass",
    f"{SUSPECTED}, {IDEAS}",
)

CAST_ONCE = Toggle(
    "cast_once",
    (Level("off"), Level("on", witness="casts")),
    "cast stored values to the compute type once instead of on every pass",
    f"{SUSPECTED}, {IDEAS}",
)

CHUNK_EVENTS = Toggle(
    "chunk_events",
    (
        Level(32768),
        *(Level(size, requires=DAMPED, witness="chunks") for size in (2**18, 2**20, 2**22)),
        Level("auto", requires=DAMPED, witness="chunks"),
    ),
    "events per chunk of a pass over activations stored by row",
    IDEAS,
    numbers=Numbers(32, like=Level(0, requires=DAMPED, witness="chunks")),
)

FREEZE_FAILED = Toggle(
    "freeze_failed",
    (Level(0), Level(3, Parity.TOLERANCE, requires=DAMPED, witness="frozen_pairs")),
    "freeze a pair after this many failed passes in a row",
    IDEAS,
    numbers=Numbers(1, 1000, like=Level(0, Parity.TOLERANCE, requires=DAMPED, witness="frozen_pairs")),
)

ACTIVE_SET = Toggle(
    "active_set",
    (
        Level("off"),
        Level(
            "pair",
            Parity.TOLERANCE,
            requires={**BY_LATENT, "consistent_stop": ("scaled",)},
            witness="compacted_pairs",
        ),
    ),
    "leave pairs out of the passes once they have converged",
    "analysis",
)

TIMING_HOOK = Toggle(
    "timing_hook",
    (Level("off"), Level("on", witness="hook_records"), Level("profiler", witness="profiler_samples")),
    "time every slab pass, by marks read one pass late or by a sampling profiler",
    IDEAS,
)

NO_SYNC_LOG = Toggle(
    "no_sync_log",
    (Level("off"), Level("on", witness="host_syncs")),
    "keep metrics and the stop flag on the device and copy them out without waiting",
    SUSPECTED,
)

PRECISION = Toggle(
    "precision",
    (
        Level("f32"),
        Level("f64", Parity.TOLERANCE, witness="events_f64"),
        Level("f32acc64", Parity.TOLERANCE, witness="sums_acc64"),
    ),
    "type of events and of their sums",
    OPEN,
)

LABEL_FREE_TOGGLE = Toggle(
    "label_free",
    (
        Level("off"),
        Level("on", witness="label_gathers", in_code="the sums of labels before the first pass, once"),
    ),
    "sum labels once instead of gathering them on every pass",
    "analysis",
)

CSC_LAYOUT = Toggle(
    "csc_layout",
    (
        Level("off"),
        Level(
            "on",
            requires=LABEL_FREE,
            witness="bucket_launches",
            in_code="activations sorted by latent once, and row sums of padded buckets instead of a scatter",
        ),
    ),
    "sort activations by latent into padded buckets: no scatter",
    "analysis",
)

FUSED_KERNEL = Toggle(
    "fused_kernel",
    (
        Level("off"),
        Level(
            "on",
            requires=BY_LATENT,
            conflicts={"compile": ("on",), "precision": ("f32acc64",)},
            unsupported=needs_native_compiler,
            witness="fused_launches",
        ),
    ),
    "hand-written kernel for the sums: Triton on CUDA; C++ on CPU, for start, steps, verdicts and counts too",
    "analysis",
)

CONSISTENT_STOP = Toggle(
    "consistent_stop",
    (
        Level("seed", requires={"solver": ("naive",)}),
        Level("mismatch", requires={"solver": ("late",)}),
        Level(
            "scaled",
            Parity.TOLERANCE,
            witness="scaled_tests",
            in_code="one scaled gradient for both tests, which pairs are active and which have converged",
        ),
    ),
    "measure activity and convergence by the same scaled gradient",
    CONTEXT,
    baselines=(Baseline("mismatch", {"solver": ("late",)}), Baseline("scaled", {"solver": ("newton",)})),
)

WARM_START = Toggle(
    "warm_start",
    (Level("off"), Level("on", Parity.TOLERANCE, requires=LABEL_FREE, witness="warm_pairs")),
    "start from the solution for activations taken as present or absent, or on nodes in the CPU's own kernel",
    "analysis",
)

QX_STAT = Toggle(
    "qx_stat",
    (
        Level("rms"),
        Level("rms_free", witness="qx_passes"),
        *(Level(name, Parity.TOLERANCE, witness="metric_changed") for name in ("meanabs", "max", "p95")),
    ),
    "statistic that scales w in the step metric",
    OPEN,
)

CONFUSION_SEARCH = Toggle(
    "confusion_search",
    (Level("off"), Level("on", requires=BY_LATENT, witness="confusion_searches")),
    "count predictions by binary search in sorted values",
    IDEAS,
)

TOGGLES = (
    SOLVER,
    SKIP_ZERO_GRAD,
    CACHE_ROW_IDX,
    CAST_ONCE,
    CHUNK_EVENTS,
    shared.slab_size(8, 1, 4, 32, "all", source=IDEAS, every={"witness": "slabs"}),
    FREEZE_FAILED,
    ACTIVE_SET,
    TIMING_HOOK,
    NO_SYNC_LOG,
    PRECISION,
    LABEL_FREE_TOGGLE,
    CSC_LAYOUT,
    shared.compile("on", source="analysis", every={"requires": BY_LATENT}),
    FUSED_KERNEL,
    CONSISTENT_STOP,
    WARM_START,
    QX_STAT,
    shared.caching_allocator(source=PLAN),
    CONFUSION_SEARCH,
)

# Gradients and Hessians at one fixed point, computed by each arm's own pass: all arms must agree to float32
# rounding of reordered sums, whatever solver uses them. The oracle figures are recorded for every arm; the
# report-time solver is known to fail them on well-posed pairs, and arms that share its passes inherit that.
PROBE_BOUND = 1e-5
MAX_GRADIENT = 1.01e-6
MAX_EXCESS = 1e-5
MEAN_EXCESS = 5e-7
CHECKS = (
    Check("probe_gradient", Comparator.RELATIVE, PROBE_BOUND),
    Check("probe_hessian", Comparator.RELATIVE, PROBE_BOUND),
    Check("loss_mean", Comparator.ABSOLUTE, MAX_EXCESS),  # of timed jobs too
    Check("max_gradient", Comparator.AT_MOST, MAX_GRADIENT, against="oracle"),
    Check("max_excess", Comparator.AT_MOST, MAX_EXCESS, against="oracle"),
    Check("mean_excess", Comparator.AT_MOST, MEAN_EXCESS, against="oracle"),
    Check("confusion_mismatches", Comparator.AT_MOST, 0.0, against="oracle"),
)
