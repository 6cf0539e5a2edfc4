"""From gradients to new values: optimiser, clipping, learning rate, loss scaling."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from perfsweep.workloads.spd.maths.losses import learning_rate
from perfsweep.workloads.spd.presets import Recipe
from perfsweep.workloads.training.precision import grad_scaler
from perfsweep.workloads.training.updates import UPDATES


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

    def state(self) -> dict[str, Any]:
        """State for a checkpoint."""
        return {"optimizer": self.optimizer.state_dict(), "scaler": self.scaler.state_dict()}

    def load(self, state: Mapping[str, Any]) -> None:
        """Take the state of a checkpoint."""
        self.optimizer.load_state_dict(state["optimizer"])
        if self._lr is not None:  # the groups have got a rate of their own, which no schedule fills
            for group in self.optimizer.param_groups:
                group["lr"] = self._lr
        self.scaler.load_state_dict(state["scaler"])


def _norm(parameters: list[nn.Parameter]) -> Tensor:
    return torch.nn.utils.get_total_norm(
        [parameter.grad for parameter in parameters if parameter.grad is not None]
    )
