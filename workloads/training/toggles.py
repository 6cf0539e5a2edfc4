"""The shared toggles of the training loop, each with its witness."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from perfsweep.workloads import toggles as shared
from perfsweep.workloads.api import Check, Comparator, LevelValue, Toggle
from perfsweep.workloads.errors import ContractError

# Sixteen bits round to 8 significant bits (bfloat16) or 11 (fp16, TF32). In the tens of iterations of an
# evidence trial a small network stays well within these bounds; other networks should declare their own.
SIXTEEN_BIT_BOUNDS = {"losses": 2e-2, "first_gradient": 5e-2, "parameters": 3e-2, "replay/*": 5e-2}
TF32_BOUNDS = {"losses": 5e-3, "first_gradient": 1e-2, "parameters": 1e-2, "replay/*": 1e-2}

# A replay overwrites the memory of the previous replay, gradients included: they must be dropped before.
GRAPHS_NEED = {"zero_grad": ("none",), "micro_batch": ("all",)}

CHECKS = (
    Check("losses", Comparator.RELATIVE),  # one for each iteration so far
    # one backward pass at the initial parameters, before any drift
    Check("first_gradient", Comparator.RELATIVE),
    Check("parameters", Comparator.RELATIVE),  # all of them, at the end
)

# A checkpoint must have the state of its iteration, however late it is written: compared bit by bit.
SAVED = Check("checkpoint_error", Comparator.AT_MOST, bound=0.0, against="oracle")
"""The check of a training that saves checkpoints."""

DATA = shared.data()
"""A toggle that is used only with `measure.stall`, or in sweeps that name it."""

Options = Mapping[str, Mapping[str, Any]]


def _compile(**own: Any) -> Toggle:
    each = {
        "default": {"in_code": "`model = torch.compile(model)`"},
        "reduce_overhead": {
            "requires": GRAPHS_NEED,
            "unsupported": shared.needs_graphs,
            "in_code": '`model = torch.compile(model, mode="reduce-overhead")`',
        },
    }
    return shared.compile("default", "reduce_overhead", **{"each": each, **own})


def _micro_batch(*sizes: LevelValue, **own: Any) -> Toggle:
    return shared.micro_batch(*(sizes or ("all", 16)), **own)


_MAKE: dict[str, tuple[Callable[..., Toggle], dict[str, Any]]] = {
    "amp": (shared.amp, {"witness": "low_precision_ops", "bounds": SIXTEEN_BIT_BOUNDS}),
    "tf32": (shared.tf32, {"witness": "tf32_iterations", "bounds": TF32_BOUNDS}),
    "compile": (_compile, {}),
    "pin_memory": (shared.pin_memory, {"witness": "pinned_batches"}),
    "num_workers": (shared.num_workers, {"witness": "worker_batches"}),
    "non_blocking": (shared.non_blocking, {"witness": "unwaited_copies"}),
    "prefetch": (shared.prefetch, {"witness": "prefetched_batches"}),
    "micro_batch": (_micro_batch, {"witness": "micro_steps"}),
    "optimizer": (shared.optimizer, {"witness": "ops"}),
    "zero_grad": (shared.zero_grad, {"witness": "ops"}),
    "grad_checkpointing": (shared.grad_checkpointing, {"witness": "saved_bytes"}),
    "gc": (shared.gc, {"witness": "uncollected_evaluations"}),
    "checkpoint": (shared.checkpoint, {"witness": "background_saves"}),
    "wandb_logging": (shared.wandb_logging, {}),
    "ddp": (shared.ddp, {}),
    "ddp_weak": (shared.ddp_weak, {}),
}

NAMES = tuple(_MAKE)
"""Toggles that `Training` implements."""

ON_REQUEST = ("grad_checkpointing", "gc", "checkpoint", "wandb_logging", "ddp", "ddp_weak")
"""Toggles that act only where a training names `Parts` for them, where its metrics are sent to W&B, or where
there are cores or GPUs for several processes."""


def shared_toggles(*names: str, **own: Mapping[str, Any]) -> tuple[Toggle, ...]:
    """Toggles that `Training` implements; without names, all except those in `ON_REQUEST`.

    `own` changes single toggles by arguments of the functions of `perfsweep.workloads.toggles`:
    ``shared_toggles("amp", "optimizer", amp={"keep": ("off", "bf16")})``, and `micro_batch` and `num_workers`
    with ``{"levels": (...)}``. The names must include the toggles that a toggle requires: `non_blocking`
    needs `pin_memory`.

    Raises
    ------
    ContractError
        There is no such toggle.
    """
    chosen = names or tuple(name for name in NAMES if name not in ON_REQUEST)
    if unknown := [name for name in (*chosen, *own) if name not in _MAKE]:
        raise ContractError(f"Training does not know the toggle {unknown[0]}; it knows: {', '.join(NAMES)}")
    if unused := [name for name in own if name not in chosen]:
        raise ContractError(f"shared_toggles changes {unused[0]} and does not list it; add it to the names")
    return tuple(_made(name, own.get(name, {})) for name in chosen)


def _made(name: str, own: Mapping[str, Any]) -> Toggle:
    make, every = _MAKE[name]
    merged = {**every, **own.get("every", {})}
    options = {name: value for name, value in own.items() if name != "levels"}
    return make(*own.get("levels", ()), **{**options, **({"every": merged} if merged else {})})
