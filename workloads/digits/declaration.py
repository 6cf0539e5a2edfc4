"""What digits declares: what can be switched, what that may change, and what people say about it.

Declarations only: this module imports neither torch nor the code it describes, so that plans and command
lines can read it in milliseconds. Every level but the first names a *witness*, a counter that differs from
the baseline's when the level acts: a level whose witness doesn't move is reported as *no effect*
instead of as a gain of 1.00x.
"""

from __future__ import annotations

from perfsweep.workloads import toggles as shared
from perfsweep.workloads.api import Check, Claim, Comparator, Declaration, LevelValue
from perfsweep.workloads.digits.config import DigitsConfig
from perfsweep.workloads.training import toggles as training
from perfsweep.workloads.training.toggles import DATA

# Autocast keeps parameters and updates in float32 and rounds what enters products: bfloat16 to 8 significant
# bits. Measured over 24 to 55 iterations: losses 0.001, logits 0.007, gradient 0.006, parameters 0.005. The
# bounds leave room for other seeds and sizes, not for mistakes: a relative distance below 0.04 implies a
# cosine above 0.999, as sin(angle) <= distance.
SIXTEEN_BIT_BOUNDS = {
    "losses": 1e-2,
    "probe_logits": 4e-2,
    "first_gradient": 4e-2,
    "parameters": 2e-2,
    "replay/*": 4e-2,
}
# TF32 rounds to 11 significant bits, as fp16 does; fp16 was measured at an eighth of bfloat16's distances.
TF32_BOUNDS = {
    "losses": 2e-3,
    "probe_logits": 1e-2,
    "first_gradient": 5e-3,
    "parameters": 1e-2,
    "replay/*": 5e-3,
}


# All but the one that needs a second core or GPU: a minute is to do on any machine.
TOGGLES = training.shared_toggles(
    *(name for name in training.NAMES if name not in ("ddp", "ddp_weak")),
    amp={"every": {"bounds": SIXTEEN_BIT_BOUNDS}},
    tf32={"every": {"bounds": TF32_BOUNDS}},
    num_workers={"levels": (0, 2)},
    micro_batch={"levels": ("all", 64, 32)},
)

RANKS = training.shared_toggles("ddp", "ddp_weak")
"""For sweeps that name it."""

CHECKS = (
    *training.CHECKS,
    Check("probe_logits", Comparator.RELATIVE),  # of the first gradient's examples, at the end
    training.SAVED,
)


def _guide(text: str, section: str, *arms: dict[str, LevelValue]) -> Claim:
    source = "PyTorch performance tuning guide"
    return Claim(text, source, section, arms, kind="qualitative", word="faster")


CLAIMS = (
    Claim(  # of a mechanism: what is saved in all is another question
        "loader workers overlap loading with training",
        "PyTorch performance tuning guide",
        "asynchronous data loading",
        ({"num_workers": 2},),
        kind="predicate",
        figure="worker_batches",
        low=1,
    ),
    _guide(
        "pinned host memory makes copies to the GPU faster and lets them run during the computation",
        "asynchronous data loading",
        {"pin_memory": "on"},
        {"pin_memory": "on", "non_blocking": "on"},
    ),
    _guide(
        "dropping gradients saves the memory operations of zeroing them and adding to them",
        "parameter.grad = None",
        {"zero_grad": "none"},
    ),
    _guide(
        "one fused kernel for many pointwise operations saves launches and memory traffic, in optimisers too",
        "fuse operations",
        {"optimizer": "fused"},
    ),
    _guide(
        "torch.compile fuses pointwise operations and reductions by itself",
        "fuse operations",
        {"compile": "default"},
    ),
    _guide(
        "CUDA graphs remove launch costs and synchronisation from the iteration",
        "CUDA graphs",
        {"compile": "reduce_overhead", "zero_grad": "none"},
    ),
    _guide("TF32 products use the tensor cores that float32 leaves idle", "tensor cores", {"tf32": "on"}),
    Claim(
        "mixed precision is up to three times as fast on GPUs with tensor cores",
        "PyTorch performance tuning guide",
        "mixed precision",
        ({"amp": "bf16"}, {"amp": "fp16"}),
        low=1.0,
        high=3.0,
        unsupported=shared.needs_tensor_cores,
    ),
)


class Digits(Declaration):
    """Trains a small classifier on scikit-learn's digits."""

    Config = DigitsConfig
    toggles = TOGGLES
    on_request = (*Declaration.on_request, DATA, *RANKS)
    claims = CLAIMS
    checks = CHECKS
