"""Single iterations replayed from the baseline's states: they show where an arm first differs from it.

Two correct trainings drift apart step after step, and their last parameters say little. So the baseline keeps
its state before a few of its iterations, and the gradient that its optimizer was then given. Another arm
loads each of these states, does that one iteration, and its gradient is compared. A mistake shows at its
iteration and in its tensor, before rounding errors grow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from perfsweep.workloads.api import REPLAYED, Evidence, Replayable

LARGEST_BYTES = 2**29
"""States above this are not kept: several of them would not fit next to a model that fills its device."""

_OWN_OPTIONS = ("foreach", "fused", "capturable", "differentiable", "maximize")


def kept_iterations(iterations: int) -> list[int]:
    """The first two iterations, the middle one and the last."""
    return sorted({0, 1, iterations // 2, iterations - 1} & set(range(iterations)))


def record(training: Replayable, iterations: int, step: Callable[[], None], folder: Path | None) -> Evidence:
    """Iterate; gradients of the kept iterations, and in `folder`, if any, the states before them."""
    found = Evidence()
    chosen = kept_iterations(iterations) if _bytes(training) <= LARGEST_BYTES else []
    for number in range(iterations):
        if number in chosen and folder is not None:
            _save(training, folder / f"{number}.pt")
        with _gradients(training) as gradients:
            step()
        if number in chosen:
            _enter(found, number, gradients)
    return found


def repeat(training: Replayable, step: Callable[[], None], folder: Path) -> Evidence:
    """Gradients of single iterations from the states in `folder`; none if parameters are kept differently.

    An iteration without an update, as after an overflow in half precision, has no entry.
    """
    found = Evidence()
    for file in sorted(folder.glob("*.pt"), key=lambda file: int(file.stem)):
        saved = torch.load(file, weights_only=True)
        if saved["layout"] != _layout(training):
            return Evidence()
        _load(training, saved)
        with _gradients(training) as gradients:
            step()
        _enter(found, int(file.stem), gradients)
    return found


def _enter(found: Evidence, number: int, gradients: dict[str, torch.Tensor]) -> None:
    if gradients:
        name = f"{REPLAYED}{number}"
        found.tensors[name] = torch.cat(list(gradients.values()))
        found.parts[name] = {part: gradient.numel() for part, gradient in gradients.items()}


@contextmanager
def _gradients(training: Replayable) -> Iterator[dict[str, torch.Tensor]]:
    """What the optimizer gets at its next update, flat and on the host, by parameter; empty without one."""
    gradients: dict[str, torch.Tensor] = {}

    def look(*_: Any) -> None:
        for name, parameter in training.parameters.items():
            grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            gradients[name] = grad.detach().flatten().to("cpu", copy=True)

    hook = training.optimizer.register_step_pre_hook(look)
    try:
        yield gradients
    finally:
        hook.remove()


def _layout(training: Replayable) -> list[list[Any]]:
    return [[name, *parameter.shape] for name, parameter in training.parameters.items()]


def _bytes(training: Replayable) -> int:
    return sum(parameter.numel() * parameter.element_size() for parameter in training.parameters.values())


def _save(training: Replayable, file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    random = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        random["cuda"] = torch.cuda.get_rng_state()
    torch.save({"layout": _layout(training), "random": random, "state": dict(training.save())}, file)


def _load(training: Replayable, saved: dict[str, Any]) -> None:
    optimizer = training.optimizer
    own = [{name: group[name] for name in _OWN_OPTIONS if name in group} for group in optimizer.param_groups]
    training.load(saved["state"])
    # An optimizer's state brings the options of the one that saved it, and these are the arm's own choice.
    for group, options in zip(optimizer.param_groups, own, strict=True):
        group.update(options)
        for parameter in group["params"]:
            state = optimizer.state.get(parameter, {})
            if "step" in state and (group.get("fused") or group.get("capturable")):
                state["step"] = torch.as_tensor(state["step"], dtype=torch.float32, device=parameter.device)
    torch.set_rng_state(saved["random"]["cpu"])
    if "cuda" in saved["random"] and torch.cuda.is_available():
        torch.cuda.set_rng_state(saved["random"]["cuda"])
