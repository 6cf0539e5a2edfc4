"""From gradients to new values: optimiser, clipping, learning rate, loss scaling."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from perfsweep.workloads.spd.maths.losses import learning_rate
from perfsweep.workloads.spd.presets import Recipe
from perfsweep.workloads.training.precision import grad_scaler
from perfsweep.workloads.training.updates import UPDATES

MOMENTS = ("exp_avg", "exp_avg_sq")
Named = Callable[[Callable[[nn.Parameter], Tensor]], dict[str, Tensor]]
"""Tensors in the places of parameters, by names; see `Decomposition.named_views`."""


class Updates:
    """AdamW without weight decay over two groups of parameters, each clipped by itself.

    Parameters
    ----------
    capturable : learning rate and step counts live on the device, as CUDA graphs need
    amp : level of the toggle
    """

    def __init__(
        self,
        recipe: Recipe,
        components: list[nn.Parameter],
        importance: list[nn.Parameter],
        level: str,
        capturable: bool = False,
        amp: str = "off",
    ) -> None:
        self.recipe = recipe
        self.groups = {"components": components, "importance": importance}
        device = components[0].device
        self._lr = torch.tensor(recipe.lr, device=device) if capturable else None
        self.optimizer = torch.optim.AdamW(
            [{"params": group} for group in self.groups.values()],
            lr=recipe.lr if self._lr is None else self._lr,
            weight_decay=0.0,
            capturable=capturable,
            **UPDATES[level],
        )
        self.scaler = grad_scaler(amp, device)
        self.norms: dict[str, Tensor] = {}

    def schedule(self, step: int) -> float:
        """Set the learning rate of a step and return it."""
        lr = learning_rate(self.recipe, step)
        if self._lr is not None:
            self._lr.fill_(lr)
        else:
            for group in self.optimizer.param_groups:
                group["lr"] = lr
        return lr

    def zero(self) -> None:
        """Drop gradients."""
        self.optimizer.zero_grad(set_to_none=True)

    def backward(self, loss: Tensor, retain: bool = False) -> None:
        """Add the gradients of `loss`."""
        self.scaler.scale(loss).backward(retain_graph=retain)

    def apply(self) -> None:
        """Clip and update."""
        limits = {"components": self.recipe.clip_components, "importance": self.recipe.clip_importance}
        if self.scaler.is_enabled():
            self.scaler.unscale_(self.optimizer)  # before clipping: a scaled norm means nothing
        for name, group in self.groups.items():
            limit = limits[name]
            if limit is not None:
                self.norms[name] = nn.utils.clip_grad_norm_(group, limit)
        self.scaler.step(self.optimizer)
        self.scaler.update()

    def gradient_norms(self) -> dict[str, Tensor]:
        """Norm of each group's gradients before clipping [], for logging."""
        return {
            f"train/grad_norms/{name}": self.norms.get(name, _norm(group))
            for name, group in self.groups.items()
        }

    def state(self, named: Named) -> dict[str, Any]:
        """State for a checkpoint: moments and numbers of steps under names that no toggle changes.

        Parameters
        ----------
        named : `Decomposition.named_views`
        """
        held = {parameter: self.optimizer.state[parameter] for parameter in self.optimizer.state}
        found: dict[str, dict[str, Any]] = {
            moment: named(lambda one: held[one][moment] if one in held else torch.zeros_like(one))  # noqa: B023
            for moment in MOMENTS
        }
        steps = named(
            lambda one: one.new_tensor(float(held[one]["step"]) if one in held else 0.0).expand_as(one)
        )
        found["step"] = {name: float(view[(0,) * view.dim()]) for name, view in steps.items()}
        return {"optimizer": found, "scaler": self.scaler.state_dict()}

    def load(self, state: Mapping[str, Any], named: Named) -> None:
        """Take the state of a checkpoint, whatever levels it was saved at.

        Parts of a stack share their number of steps: the largest.
        """
        parameters = [parameter for group in self.groups.values() for parameter in group]
        held = {part: {one: torch.zeros_like(one) for one in parameters} for part in (*MOMENTS, "step")}
        for part, values in held.items():
            for name, view in named(values.__getitem__).items():
                view.copy_(torch.as_tensor(state["optimizer"][part][name]))
        own: dict[int, dict[str, Tensor]] = {}
        for number, one in enumerate(parameters):
            steps = held["step"][one].max()
            loaded = {"step": steps.cpu(), **{moment: held[moment][one] for moment in MOMENTS}}
            there = self.optimizer.state.get(one, {})
            for part in there:
                there[part].copy_(loaded[part])  # in place: a captured graph goes on with these tensors
            if there or steps > 0:
                own[number] = there or loaded
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": own, "param_groups": groups})
        if self._lr is not None:  # the groups have got a rate of their own, which no schedule fills
            for group in self.optimizer.param_groups:
                group["lr"] = self._lr
        if state["scaler"]:  # a training without scaling leaves none, and one that scales begins as usual
            self.scaler.load_state_dict(state["scaler"])


def _norm(parameters: list[nn.Parameter]) -> Tensor:
    return torch.nn.utils.get_total_norm(
        [parameter.grad for parameter in parameters if parameter.grad is not None]
    )
