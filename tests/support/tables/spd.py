"""Toggles of SPD: stochastic parameter decomposition of a frozen network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tables.spd_claims import CLAIMS, QUICK_START
from workloads import toggles as shared
from workloads.api import Check, Comparator, Level, Levels, LevelValue, Numbers, Parity, Toggle

__all__ = ["BEST", "CHAIN", "CHECKS", "CLAIMS", "FORBIDDEN", "PRESETS", "REFERENCES", "REFUSED_BY_CONFIG", "TOGGLES", "Config"]


@dataclass
class Config:
    """What refusals and parity classes depend on."""

    microbatches: int = 1
    pgd_scope: str = "shared"  # shared or datapoint
    beta: float = 0.0  # weight of the log term of the minimality loss
    drop_last: bool = True
    iterable: bool = False
    sharded: bool = False
    toy: bool = False
    canonical_draws: bool = True
    frozen_draws: bool = False


CHECKS = (
    Check("losses", Comparator.RELATIVE),
    Check("gradients", Comparator.RELATIVE),
    # The same matrix twice, one row for each module's importance gradient, rows of unit length: the cosine of the whole
    # is the mean over modules.
    Check("importance_mean", Comparator.COSINE),
    Check("importance_worst", Comparator.WORST_COSINE),
    Check("divergence", Comparator.ABSOLUTE),  # nats per position
    Check("exact_faithfulness", Comparator.AT_MOST, 1e-12, against="oracle"),
)

# Bounds of the cosines are 1 - cosine: on the mean over modules, and on the worst module.
HALF_IN_MAIN_PASS = {"losses": 1e-2, "importance_mean": 1e-3, "importance_worst": 1e-2}
BFLOAT16 = {"losses": 5e-3, "importance_mean": 2e-3, "importance_worst": 1e-2}
COMPILED_PART = {"losses": 1e-5, "gradients": 1e-4}
COMPILED_PASS = {"losses": 1e-4, "importance_mean": 1e-4, "importance_worst": 1e-4}


def _unsharded(config: Config, levels: Levels) -> str | None:
    duplicates = config.iterable and not config.sharded
    return "each worker would repeat all of an iterable data set that is not sharded (workload.sharded)" if duplicates else None


def _shared_sources(config: Config, levels: Levels) -> str | None:
    if config.microbatches > 1 and config.pgd_scope == "shared":
        return f"workload.microbatches={config.microbatches} cannot share adversarial sources (workload.pgd_scope=shared)"
    return None


def _partial_batch(config: Config, levels: Levels) -> str | None:
    return None if config.drop_last else "a graph has one batch size, and workload.drop_last=false keeps a partial last batch"


def _toys_only(config: Config, levels: Levels) -> str | None:
    return None if config.toy else "several seeds in one process are for toy targets (workload.toy)"


def _unless_frozen(config: Config, levels: Levels) -> Parity | None:
    return None if config.frozen_draws else Parity.STOCHASTIC


def _unless_frozen_and_linear(config: Config, levels: Levels) -> Parity | None:
    # The log term of the minimality loss is no sum over microbatches.
    return None if config.frozen_draws and config.beta == 0 else Parity.STOCHASTIC


def _unless_canonical(config: Config, levels: Levels) -> Parity | None:
    return None if config.canonical_draws else Parity.STOCHASTIC


def _on(**own: Any) -> tuple[Level, ...]:
    return Level("off"), Level("on", **own)


_WRAPPED: dict[str, Any] = {"requires": {"patching": ("wrapper",)}}
_HOOKS_STAY = {"patching": ("wrapper", "persistent_hooks")}
_DIFFERENT: dict[str, Any] = {"parity": Parity.STOCHASTIC, "witness": "pgd_passes"}
_SCOPES: dict[LevelValue, dict[str, Any]] = {
    "target": {"requires": _HOOKS_STAY, "bounds": {"losses": 1e-5}},
    "breaks": {"requires": _HOOKS_STAY, "bounds": {"losses": 1e-5}},
    "ci_fns": {"bounds": COMPILED_PART},
    "losses": {"bounds": {"losses": 1e-5}},
    "masked_pass": {**_WRAPPED, "bounds": COMPILED_PASS},
    "full": {**_WRAPPED, "bounds": COMPILED_PASS},
}

TOGGLES = (
    shared.pin_memory(every={"witness": "pinned_batches"}, source="1.1"),
    shared.num_workers(0, 2, 4, 8, every={"refused": _unsharded, "witness": "worker_batches"}, source="1.2"),
    shared.compile(
        *("ci_fns", "target", "losses", "breaks", "masked_pass", "full"),
        every={"parity": Parity.TOLERANCE},
        each=_SCOPES,
        source="2",
    ),
    shared.non_blocking(every={"witness": "unwaited_copies"}, source="3.1"),
    shared.prefetch(every={"witness": "prefetched_batches"}, source="3.2"),
    shared.tf32(every={"bounds": HALF_IN_MAIN_PASS, "witness": "tf32_products"}, source="4.1"),
    shared.amp(
        every={"witness": "low_precision_ops"},
        each={
            "bf16": {"bounds": BFLOAT16},
            "fp16": {"bounds": HALF_IN_MAIN_PASS, "requires": {"pgd_inner": ("detached",)}},
        },
        source="4",
    ),
    Toggle(
        "patching",
        (
            Level("temp_hooks"),
            Level("persistent_hooks", witness="hook_registrations"),
            Level("wrapper", witness="hook_registrations"),
        ),
        "how components take the place of weights: hooks for each pass, hooks for good, or replaced modules",
        "5.1",
    ),
    Toggle("prefix_reuse", _on(witness="gemm_flops", **_WRAPPED), "restart masked passes at the first masked block", "5.2"),
    Toggle(
        "delta",
        (Level("naive"), Level("cached_w", witness="weight_fetches"), Level("folded", witness="gemm_flops", **_WRAPPED)),
        "the part of a weight that components leave over: built, built from a cached weight, or folded into the sum",
        "6.1",
    ),
    Toggle(
        "unmasked_form",
        (Level("two_step"), Level("fused", witness="gemm_flops"), Level("by_cost", witness="gemm_flops")),
        "unmasked components by two products, by one, or by what costs less",
        "6.2",
    ),
    Toggle(
        "stack_modules",
        (Level("loop"), Level("stacked", loosened=_unless_canonical, witness="kernel_launches", **_WRAPPED)),
        "treat modules of one shape together",
        "6.3",
    ),
    Toggle(
        "pgd_inner",
        (Level("full"), Level("detached", witness="gemm_flops")),
        "adversarial inner passes without the graph of parameters",
        "6.4",
    ),
    Toggle(
        "pgd_layerwise",
        (Level("all_modules"), Level("single", witness="masked_modules")),
        "layerwise adversarial passes through one module only",
        "6.4",
    ),
    Toggle(
        "pgd_steps",
        (Level("n"), Level("schedule", **_DIFFERENT), Level("every_k", **_DIFFERENT), Level("persistent", **_DIFFERENT)),
        "how many adversarial passes an iteration makes",
        "6.4",
    ),
    shared.checkpoint(every={"witness": "background_saves"}, source="7.1"),
    shared.wandb_logging(keep=("each", "commit_false", "buffered"), each={"buffered": {"witness": "wandb_calls"}}, source="7.2"),
    shared.gc("oom_only", every={"witness": "collections"}, source="8.1"),
    shared.grad_checkpointing("off", "per_block", every={**_WRAPPED, "witness": "saved_bytes"}, source="8.2"),
    Toggle("free_early", _on(witness="live_bytes"), "drop logits and importances once the loss has them", "8.3"),
    Toggle(
        "profiler",
        (
            Level("off"),
            Level("events", witness="recorded_events"),
            Level("torch", witness="profiled_steps"),
            Level("pyinstrument", witness="profiler_samples"),
        ),
        "a profiler beside the training",
        "9",
    ),
    Toggle("metrics", (Level("every_step_item"), Level("deferred", witness="host_syncs")), "read metrics when they are logged"),
    Toggle(
        "mask_checks",
        (Level("sync"), Level("off", witness="host_syncs"), Level("async_assert", witness="host_syncs")),
        "range checks of masks: waiting, none, or on the device",
    ),
    Toggle(
        "target_softmax",
        # What cancels between the two forms leaves an error in nats, whatever the size of the divergence.
        (Level("recompute"), Level("cached", bounds={"divergence": 2e-6, "losses": 1e-4}, witness="softmax_rows")),
        "softmax and entropy of the target once for all passes",
    ),
    Toggle(
        "kl_chunk",
        (Level("off"), Level(1024, witness="vocabulary_bytes")),
        "divergence over the vocabulary in pieces of this many rows",
        numbers=Numbers(1, like=Level(0, witness="vocabulary_bytes")),
    ),
    shared.micro_batch(
        *("loop", "whole"),
        numbers=False,
        each={"loop": {"refused": _shared_sources}, "whole": {"loosened": _unless_frozen_and_linear, "witness": "masked_passes"}},
    ),
    shared.optimizer(every={"witness": "kernel_launches"}),
    Toggle(
        "cuda_graph",
        _on(
            requires={"metrics": ("deferred",), "mask_checks": ("async_assert", "off")},
            refused=_partial_batch,
            loosened=_unless_frozen,
            unsupported=shared.needs_graphs,
            witness="graph_replays",
        ),
        "capture a step once and replay it",
    ),
    Toggle("fused_target_ops", _on(bounds={"losses": 1e-5}, witness="kernel_launches"), "fused activation, norm and rotary"),
    Toggle(
        "component_kernel",
        (Level("eager"), Level("triton", loosened=_unless_frozen, unsupported=shared.needs_cuda, witness="component_bytes")),
        "masks drawn and applied inside the product",
    ),
    Toggle(
        "loader",
        (
            Level("torch"),
            Level("memmap_batched", witness="row_fetches"),
            Level(
                "gpu_resident",
                requires={"pin_memory": ("off",), "num_workers": (0,), "non_blocking": ("off",), "prefetch": ("off",)},
                unsupported=shared.needs_cuda,
                witness="row_fetches",
            ),
        ),
        "fetch rows one by one, by the batch from a mapped file, or from the device",
    ),
    Toggle(
        "toy_batch",
        (Level(1), Level(8, parity=Parity.STOCHASTIC, refused=_toys_only, witness="stacked_seeds")),
        "train this many seeds of a toy in one process",
        numbers=Numbers(2, 4096, Level(0, parity=Parity.STOCHASTIC, refused=_toys_only, witness="stacked_seeds")),
    ),
)

REFERENCES: dict[str, dict[str, LevelValue]] = {
    "naive": {},
    "naive_tf32": {"tf32": "on"},
    "naive_bf16_compiled": {"amp": "bf16", "patching": "wrapper", "compile": "full"},
}

EXACT: dict[str, LevelValue] = {
    "patching": "wrapper",
    "prefix_reuse": "on",
    "delta": "folded",
    "unmasked_form": "by_cost",
    "stack_modules": "stacked",
    "pgd_inner": "detached",
    "pgd_layerwise": "single",
    "checkpoint": "async",
    "wandb_logging": "buffered",
    "gc": "rarely",
    "free_early": "on",
    "metrics": "deferred",
    "mask_checks": "off",
    "target_softmax": "cached",
    "kl_chunk": 1024,
    "optimizer": "fused",
    "fused_target_ops": "on",
    "loader": "memmap_batched",
}

BEST: dict[str, LevelValue] = {**EXACT, "compile": "full"}

PRESETS: dict[str, dict[str, LevelValue]] = {
    "exact": EXACT,
    "gpu": {**BEST, "amp": "bf16", "cuda_graph": "on", "component_kernel": "triton", "loader": "gpu_resident"},
}

CHAIN: tuple[tuple[str, LevelValue], ...] = (
    ("patching", "wrapper"),
    ("delta", "folded"),
    ("target_softmax", "cached"),
    ("pgd_inner", "detached"),
    ("prefix_reuse", "on"),
    ("compile", "full"),
    ("optimizer", "fused"),
)

FORBIDDEN: tuple[tuple[dict[str, LevelValue], str], ...] = (
    *(({"compile": scope}, "patching") for scope in ("target", "breaks", "masked_pass", "full")),
    *(({"compile": scope, "patching": "persistent_hooks"}, "patching") for scope in ("masked_pass", "full")),
    *(({name: value}, "patching") for name, value in (("grad_checkpointing", "per_block"), ("prefix_reuse", "on"))),
    *(({name: value}, "patching") for name, value in (("stack_modules", "stacked"), ("delta", "folded"))),
    ({"non_blocking": "on"}, "pin_memory"),
    ({"amp": "fp16"}, "pgd_inner"),
    ({"cuda_graph": "on", "mask_checks": "off"}, "metrics"),
    ({"cuda_graph": "on", "metrics": "deferred"}, "mask_checks"),
    ({"loader": "gpu_resident", "pin_memory": "on"}, "pin_memory"),
    ({"loader": "gpu_resident", "num_workers": 3}, "num_workers"),
    ({"loader": "gpu_resident", "pin_memory": "on", "non_blocking": "on"}, "non_blocking"),
    ({"loader": "gpu_resident", "prefetch": "stream"}, "prefetch"),
    (QUICK_START, "patching"),
)

REFUSED_BY_CONFIG: tuple[tuple[Config, dict[str, LevelValue], str], ...] = (
    (Config(iterable=True), {"num_workers": 4}, "sharded"),
    (Config(iterable=True), {"num_workers": 3}, "sharded"),
    (Config(microbatches=2), {}, "pgd_scope"),
    (Config(drop_last=False), {"cuda_graph": "on", "metrics": "deferred", "mask_checks": "off"}, "drop_last"),
    (Config(), {"toy_batch": 8}, "toy"),
    (Config(), {"toy_batch": 5}, "toy"),
)
