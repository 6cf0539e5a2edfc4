"""What can be switched in the digits training, what the switches may change, and what people say about them.

Declarations only: this module imports neither torch nor the code it describes, so that plans and command
lines can read it in milliseconds. Every level but the first names a *witness*, a counter that differs from
the baseline's when the level acts: a level whose witness doesn't move did nothing, and is reported as inert
instead of as a gain of 1.00x.
"""

from __future__ import annotations

from workloads import toggles as shared
from workloads.api import Check, Claim, Comparator, Device

GUIDE = "PyTorch performance tuning guide"

# Autocast keeps parameters and updates in float32 and rounds what enters products: bfloat16 to 8 significant
# bits. Measured over 24 to 55 iterations: losses 0.001, logits 0.007, gradient 0.006, parameters 0.005. The
# bounds leave room for other seeds and sizes, not for mistakes: a relative distance below 0.04 implies a
# cosine above 0.999, as sin(angle) <= distance.
SIXTEEN_BIT_BOUNDS = {
    "losses": 1e-2,
    "probe_logits": 4e-2,
    "probe_grad": 4e-2,
    "parameters": 2e-2,
    "replay/*": 4e-2,
}
# TF32 rounds to 11 significant bits, as fp16 does; fp16 was measured at an eighth of bfloat16's distances.
TF32_BOUNDS = {"losses": 2e-3, "probe_logits": 1e-2, "probe_grad": 5e-3, "parameters": 1e-2, "replay/*": 5e-3}


def needs_graphs(device: Device) -> str | None:
    """Reason why CUDA graphs cannot be replayed here.

    On CPU torch.compile accepts ``mode="reduce-overhead"`` and silently runs what the default mode runs, so
    timing it would only measure the default mode again.
    """
    if device.type == "cuda":
        return None
    return (
        f"reduce-overhead adds CUDA graphs to what default does, and {device.type} has none: use"
        " compile=default"
    )


# A replay overwrites the memory of the one before, gradients included, so they must have been used and
# dropped by then.
GRAPHS_NEED = {"zero_grad": ("none",), "micro_batch": ("all",)}

TOGGLES = (
    shared.amp(every={"witness": "low_precision_ops", "bounds": SIXTEEN_BIT_BOUNDS}),
    shared.tf32(every={"witness": "tf32_iterations", "bounds": TF32_BOUNDS}),
    shared.compile(
        "default",
        "reduce_overhead",
        each={"reduce_overhead": {"requires": GRAPHS_NEED, "unsupported": needs_graphs}},
    ),
    shared.pin_memory(every={"witness": "pinned_batches"}),
    shared.num_workers(0, 2, every={"witness": "worker_batches"}),
    shared.non_blocking(every={"witness": "unwaited_copies"}),
    shared.prefetch(every={"witness": "prefetched_batches"}),
    shared.micro_batch("all", 64, 32, every={"witness": "micro_steps"}),
    shared.optimizer(every={"witness": "ops"}),
    shared.zero_grad(every={"witness": "ops"}),
    shared.grad_checkpointing(every={"witness": "saved_bytes"}),
    shared.gc(every={"witness": "uncollected_evaluations"}),
    shared.checkpoint(every={"witness": "background_saves"}),
    shared.wandb_logging(),
)

# What parity compares. Where no bound is given, the level's class decides: exact levels may differ by
# rounding only.
CHECKS = (
    Check("losses", Comparator.RELATIVE),  # one for each iteration so far
    Check(
        "probe_grad", Comparator.RELATIVE
    ),  # one backward pass at the initial parameters: nothing has drifted yet
    Check("probe_logits", Comparator.RELATIVE),  # the same examples at the end
    Check("parameters", Comparator.RELATIVE),  # all of them, at the end
    # A checkpoint must hold the moment it was asked for, however late it is written: compared bit by bit in
    # the workload.
    Check("checkpoint_error", Comparator.AT_MOST, bound=0.0, against="oracle"),
)

CLAIMS = (
    Claim(
        "loader workers overlap loading with training",
        GUIDE,
        "asynchronous data loading",
        ({"num_workers": 2},),
        kind="qualitative",
        word="faster",
    ),
    Claim(
        "pinned host memory makes copies to the GPU faster and lets them run beside the computation",
        GUIDE,
        "asynchronous data loading",
        ({"pin_memory": "on"}, {"pin_memory": "on", "non_blocking": "on"}),
        kind="qualitative",
        word="faster",
    ),
    Claim(
        "dropping gradients saves the memory operations of zeroing them and adding to them",
        GUIDE,
        "parameter.grad = None",
        ({"zero_grad": "none"},),
        kind="qualitative",
        word="faster",
    ),
    Claim(
        "one fused kernel for many pointwise operations saves launches and memory traffic, in optimisers too",
        GUIDE,
        "fuse operations",
        ({"optimizer": "fused"},),
        kind="qualitative",
        word="faster",
    ),
    Claim(
        "torch.compile fuses pointwise operations and reductions by itself",
        GUIDE,
        "fuse operations",
        ({"compile": "default"},),
        kind="qualitative",
        word="faster",
    ),
    Claim(
        "CUDA graphs remove launch costs and synchronisation from the iteration",
        GUIDE,
        "CUDA graphs",
        ({"compile": "reduce_overhead", "zero_grad": "none"},),
        kind="qualitative",
        word="faster",
    ),
    Claim(
        "TF32 products use the tensor cores that float32 leaves idle",
        GUIDE,
        "tensor cores",
        ({"tf32": "on"},),
        kind="qualitative",
        word="faster",
    ),
    Claim(
        "mixed precision is up to three times as fast on GPUs with tensor cores",
        GUIDE,
        "mixed precision",
        ({"amp": "bf16"}, {"amp": "fp16"}),
        low=1.0,
        high=3.0,
        unsupported=shared.needs_tensor_cores,
    ),
)
