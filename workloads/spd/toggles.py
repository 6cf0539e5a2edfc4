"""What can be switched in an SPD training, what each switch may change, and the counter it moves.

Declarations only: neither torch nor the code they describe is imported.
"""

from __future__ import annotations

from typing import Any

from perfsweep.workloads import toggles as shared
from perfsweep.workloads.api import Check, Comparator, Device, Level, Levels, LevelValue, Parity, Toggle
from perfsweep.workloads.spd.config import SpdConfig

CHECKS = (
    Check("losses", Comparator.RELATIVE),
    Check("gradients", Comparator.RELATIVE),
    # The same matrix twice, one row for each module's importance gradient, rows of unit length: the cosine of
    # the whole is the mean over modules.
    Check("importance_mean", Comparator.COSINE),
    Check("importance_worst", Comparator.WORST_COSINE),
    Check("divergence", Comparator.ABSOLUTE),  # nats per position
    Check("exact_faithfulness", Comparator.AT_MOST, 1e-12, against="oracle"),
)

# Bounds of the cosines are 1 - cosine: on the mean over modules, and on the worst module.
HALF_IN_MAIN_PASS = {"losses": 1e-2, "importance_mean": 1e-3, "importance_worst": 1e-2}
BFLOAT16 = {"losses": 5e-3, "importance_mean": 2e-3, "importance_worst": 1e-2}
WRITTEN_TERMS = ("minimality", "stochastic", "stochastic_layerwise")
COMPILED_PART = {"losses": 1e-5, "gradients": 1e-4}
COMPILED_PASS = {"losses": 1e-4, "importance_mean": 1e-4, "importance_worst": 1e-4}


def _unsharded(config: SpdConfig, levels: Levels) -> str | None:
    duplicates = config.iterable and not config.sharded
    return (
        "each worker would repeat all of an iterable data set that is not sharded (workload.sharded)"
        if duplicates
        else None
    )


def _shared_sources(config: SpdConfig, levels: Levels) -> str | None:
    if config.microbatches > 1 and config.shares_sources:
        return (
            f"workload.microbatches={config.microbatches} cannot share adversarial sources"
            " (workload.pgd_scope=shared)"
        )
    return None


def _not_one_graph(config: SpdConfig, levels: Levels) -> str | None:
    if not config.drop_last:
        return "a graph has one batch size, and workload.drop_last=false keeps a partial last batch"
    if levels["amp"] == "fp16" and levels["optimizer"] != "fused":
        return "the host reads whether scaled gradients overflowed, unless optimizer=fused does on the device"
    return _moves_sources(config, levels)


def _moves_sources(config: SpdConfig, levels: Levels) -> str | None:
    own = any(loss.persistent for loss in config.recipe.losses)
    return (
        "sources of persistent terms move as workload.adversary says, in the host's program" if own else None
    )


def _unscaled(config: SpdConfig, levels: Levels) -> str | None:
    own = any(loss.persistent for loss in config.recipe.losses)
    return "persistent terms hand gradients to their sources, which a scaled loss changes" if own else None


def _unless_frozen(config: SpdConfig, levels: Levels) -> Parity | None:
    return None if config.frozen_draws else Parity.STOCHASTIC


def _unless_frozen_and_linear(config: SpdConfig, levels: Levels) -> Parity | None:
    # The log term of the minimality loss is no sum over microbatches.
    return None if config.frozen_draws and config.recipe.beta == 0 else Parity.STOCHASTIC


def _unless_canonical(config: SpdConfig, levels: Levels) -> Parity | None:
    return None if config.canonical_draws else Parity.STOCHASTIC


def _no_stages(config: SpdConfig, levels: Levels) -> str | None:
    own = config.target is not None
    return "of a network of your own (workload.target) no stages and no head are known" if own else None


def _not_written_down(config: SpdConfig, levels: Levels) -> str | None:
    """Reason why there are no formulas for a training, or None."""
    recipe = config.recipe
    counts = {count for _, count in recipe.modules}
    if [name for name, _ in recipe.modules] != ["linear1", "linear2"] or len(counts) > 1 or not recipe.toy:
        return (
            "formulas are those of a toy (workload.preset) whose two modules have equally many subcomponents"
        )
    if tuple(loss.kind for loss in recipe.losses) != WRITTEN_TERMS:
        return (
            f"formulas are those of the terms {', '.join(WRITTEN_TERMS)}, and workload.losses asks for others"
        )
    if recipe.importance != "mlp" or len(recipe.hidden) != 1 or config.sigmoid != "leaky_hard":
        return (
            "formulas are those of workload.importance=mlp with one hidden layer and"
            " workload.sigmoid=leaky_hard"
        )
    if not config.delta_component:
        return "formulas have a delta component, and workload.delta_component=false"
    if config.sampling != "continuous":
        return f"formulas are those of workload.sampling=continuous, not of {config.sampling}"
    if config.microbatches > 1 and levels["micro_batch"] == "loop":
        return f"formulas take a batch in one piece, not in workload.microbatches={config.microbatches}"
    return None


def needs_host_rows(device: Device) -> str | None:
    """Reason why routed rows cannot be gathered here: elsewhere the host would wait for their number."""
    return (
        None
        if device.type == "cpu"
        else f"the number of routed rows has to be known on the host, and {device.type} would wait"
    )


def _on(**own: Any) -> tuple[Level, ...]:
    return Level("off"), Level("on", **own)


_WRAPPED: dict[str, Any] = {"requires": {"patching": ("wrapper",)}}
_HOOKS_STAY = {"patching": ("wrapper", "persistent_hooks")}
_DIFFERENT: dict[str, Any] = {"parity": Parity.STOCHASTIC, "witness": "pgd_passes", "refused": _moves_sources}
# A compiled pass has its shapes, products and divergence built in.
_STATIC = {"component_kernel": ("fused",), "grad_checkpointing": ("per_block",), "routed_rows": ("gathered",)}
_SCOPES: dict[LevelValue, dict[str, Any]] = {
    "target": {"requires": _HOOKS_STAY, "bounds": {"losses": 1e-5}},
    "breaks": {"requires": _HOOKS_STAY, "bounds": {"losses": 1e-5}},
    "ci_fns": {"bounds": COMPILED_PART},
    "losses": {"bounds": {"losses": 1e-5}},
    "masked_pass": {**_WRAPPED, "bounds": COMPILED_PASS, "conflicts": _STATIC},
    "full": {**_WRAPPED, "bounds": COMPILED_PASS, "conflicts": _STATIC},
}

# Formulas make masks that cannot leave [0, 1], and have no graph that other levels could change.
_FORMULAS: dict[str, Any] = {
    "requires": {"delta": ("folded",), "stack_modules": ("stacked",), "mask_checks": ("off",)},
    "conflicts": {"compile": tuple(_SCOPES), "amp": ("bf16", "fp16"), "grad_checkpointing": ("per_block",)},
    "refused": _not_written_down,
    "witness": "ops",
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
            "fp16": {
                "bounds": HALF_IN_MAIN_PASS,
                "requires": {"pgd_inner": ("detached",)},
                "refused": _unscaled,
            },
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
    Toggle(
        "prefix_reuse",
        _on(witness="flops", refused=_no_stages, **_WRAPPED),
        "restart masked passes at the first masked block",
        "5.2",
    ),
    Toggle(
        "routed_rows",
        (
            Level("all"),
            Level("gathered", requires={"delta": ("folded",)}, unsupported=needs_host_rows, witness="flops"),
        ),
        "multiply all positions and drop positions that are not routed, or multiply the routed ones",
    ),
    Toggle(
        "delta",
        (
            Level("naive"),
            Level("cached_w", witness="weight_fetches"),
            Level("folded", witness="flops", **_WRAPPED),
        ),
        "the part of a weight that components leave over: built, built from a cached weight, or folded into"
        " the sum",
        "6.1",
    ),
    Toggle(
        "unmasked_form",
        (Level("two_step"), Level("fused", witness="flops")),
        "unmasked components by two products, or by one",
        "6.2",
    ),
    Toggle(
        "stack_modules",
        (Level("loop"), Level("stacked", loosened=_unless_canonical, witness="ops", **_WRAPPED)),
        "treat modules of one shape together",
        "6.3",
    ),
    Toggle(
        "pgd_inner",
        (Level("full"), Level("detached", witness="saved_bytes")),
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
        (
            Level("n"),
            *(Level(value, **_DIFFERENT) for value in ("schedule", "larger", "every_k", "persistent")),
        ),
        "how many adversarial passes an iteration makes: all, fewer early on, few large ones, every fourth"
        " time, or none",
        "6.4",
    ),
    shared.checkpoint(every={"witness": "background_saves"}, source="7.1"),
    shared.wandb_logging(
        keep=("each", "commit_false", "buffered"), each={"buffered": {"witness": "wandb_calls"}}, source="7.2"
    ),
    shared.gc("oom_only", every={"witness": "collections"}, source="8.1"),
    shared.grad_checkpointing(
        "off", "per_block", every={**_WRAPPED, "refused": _no_stages, "witness": "saved_bytes"}, source="8.2"
    ),
    Toggle(
        "free_early", _on(witness="held_bytes"), "drop logits and importances once the loss has them", "8.3"
    ),
    Toggle(
        "profiler",
        (
            Level("off"),
            Level("events", unsupported=shared.needs_cuda, witness="recorded_events"),
            Level("torch", witness="profiled_steps"),
        ),
        "a profiler during the training",
        "9",
    ),
    Toggle(
        "metrics",
        (Level("every_step_item"), Level("deferred", witness="host_reads")),
        "read metrics when they are logged",
    ),
    Toggle("mask_checks", (Level("sync"), Level("off", witness="host_reads")), "range checks of masks"),
    Toggle(
        "target_softmax",
        # What cancels between the two forms leaves an error in nats, whatever the size of the divergence.
        (
            Level("recompute"),
            Level("cached", bounds={"divergence": 2e-6, "losses": 1e-4}, witness="softmax_rows"),
        ),
        "softmax and entropy of the target once for all passes",
    ),
    shared.micro_batch(
        *("loop", "whole"),
        numbers=False,
        each={
            "loop": {"refused": _shared_sources},
            "whole": {"loosened": _unless_frozen_and_linear, "witness": "masked_passes"},
        },
    ),
    Toggle(
        "draws",
        (Level("torch"), Level("native", unsupported=shared.needs_host_compiler, witness="ops")),
        "random numbers of masks by PyTorch's calls, or the same numbers by a kernel in vectors",
    ),
    shared.products(),
    shared.optimizer(every={"witness": "ops"}),
    Toggle(
        "cuda_graph",
        _on(
            requires={"metrics": ("deferred",), "mask_checks": ("off",)},
            conflicts={"pgd_steps": ("schedule", "every_k", "persistent")},
            refused=_not_one_graph,
            loosened=_unless_frozen,
            unsupported=shared.needs_graphs,
            witness="graph_replays",
        ),
        "capture a step once and replay it",
    ),
    Toggle(
        "fused_target_ops",
        _on(bounds={"losses": 1e-5}, refused=_no_stages, witness="ops"),
        "fused activation, norm and rotary",
    ),
    Toggle(
        "component_kernel",
        (Level("eager"), Level("fused", requires={"delta": ("folded",)}, witness="ops")),
        "masks made and applied operation by operation, or in one node whose gradient is written down",
    ),
    Toggle(
        "gradients",
        (
            Level("autograd"),
            Level("formulas", **_FORMULAS),
            Level("native", unsupported=shared.needs_host_compiler, **_FORMULAS),
        ),
        "gradients of a toy from the graph of an iteration, from formulas, or from formulas in C++",
    ),
    Toggle(
        "loader",
        (
            Level("torch"),
            Level("memmap_batched", witness="row_fetches"),
            Level(
                "gpu_resident",
                requires={
                    "pin_memory": ("off",),
                    "num_workers": (0,),
                    "non_blocking": ("off",),
                    "prefetch": ("off",),
                },
                unsupported=shared.needs_cuda,
                witness="row_fetches",
            ),
        ),
        "fetch rows one by one, by the batch from a mapped file, or from the device",
    ),
)
