"""From gradients to the next weights: norm, clip, the skip of what is not finite, AdamW and its schedule."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from perfsweep.workloads.training.updates import UPDATES

LAST_SHARE = 0.02  # of the learning rate, where the cosine ends
GROWTH_INTERVAL = 2000


def schedule(step: int, total: int) -> float:
    """Share of the learning rate at an optimiser step: a cosine from 1 to 0.02 at the last of `total`."""
    progress = min(step / max(total - 1, 1), 1.0)
    return LAST_SHARE + (1 - LAST_SHARE) * 0.5 * (1 + math.cos(math.pi * progress))


class Updates:
    """AdamW over all trainables, in named groups.

    A window whose gradient norm is not finite is skipped whole and counted, and the schedule goes on.
    `chatty` reads every parameter's norm on the host, by group and once more in total; otherwise the fused
    optimiser skips on the device, and the others read one flag per step.
    """

    def __init__(
        self,
        groups: Mapping[str, Sequence[nn.Parameter]],
        level: str,
        *,
        lr: float,
        weight_decay: float,
        clip: float,
        total: int,
        chatty: bool,
        scaled: bool,
        counts: Counter[str],
    ) -> None:
        self.groups = {name: list(parameters) for name, parameters in groups.items()}
        self.parameters = [p for parameters in self.groups.values() for p in parameters]
        self.step = 0
        self._lr, self._clip, self._total = lr, clip, total
        self._chatty, self._fused, self._counts = chatty, level == "fused", counts
        self.optimizer = torch.optim.AdamW(
            self.parameters, lr=lr, weight_decay=weight_decay, **UPDATES[level]
        )
        device = self.parameters[0].device
        self.loss_scale = torch.full((), 2.0**16 if scaled else 1.0, device=device)
        self.scaled = scaled
        self._good = torch.zeros((), device=device)
        self.skipped = torch.zeros((), device=device)

    def apply(self) -> Tensor:
        """One step from the gradients present; their norm [] before clipping, without the loss scale."""
        for group in self.optimizer.param_groups:
            group["lr"] = self._lr * schedule(self.step, self._total)
        self.step += 1
        gradients = [p.grad for p in self.parameters if p.grad is not None]
        if self.scaled:
            torch._foreach_mul_(gradients, 1 / self.loss_scale)  # type: ignore[attr-defined]
        norm = self._read_norm(gradients) if self._chatty else total_norm(gradients)
        torch._foreach_mul_(gradients, (self._clip / (norm + 1e-6)).clamp(max=1.0))  # type: ignore[attr-defined]
        self._update(norm)
        self.optimizer.zero_grad(set_to_none=True)
        return norm

    def _update(self, norm: Tensor) -> None:
        broken = (~torch.isfinite(norm)).float()
        self.skipped += broken
        if self.scaled:
            self._adjust_scale(broken)
        if self._fused and not self._chatty:
            self.optimizer.found_inf = broken  # type: ignore[attr-defined]
            self.optimizer.step()
            return
        self._counts["syncs"] += 1
        if not broken.item():
            self.optimizer.step()

    def _adjust_scale(self, broken: Tensor) -> None:
        """Halve the loss scale after an overflow, double it after many good steps; no host read."""
        self._good = (self._good + 1) * (1 - broken)
        grow = self._good >= GROWTH_INTERVAL
        self.loss_scale = self.loss_scale * torch.where(broken > 0, 0.5, torch.where(grow, 2.0, 1.0))
        self._good = torch.where(grow, 0.0, self._good)

    def _read_norm(self, gradients: Sequence[Tensor]) -> Tensor:
        """The norm as upstream takes it: every parameter's on the host, by group and again for all."""
        for parameters in self.groups.values():
            for parameter in parameters:
                if parameter.grad is not None:
                    parameter.grad.norm().item()
                    self._counts["syncs"] += 1
        squares = 0.0
        for gradient in gradients:
            squares += gradient.norm().item() ** 2
            self._counts["syncs"] += 1
        return torch.tensor(
            math.sqrt(squares) if math.isfinite(squares) else math.inf, device=gradients[0].device
        )

    def state_dict(self) -> dict[str, Any]:
        """What goes on after a restart."""
        scale = {"loss_scale": self.loss_scale, "good": self._good, "skipped": self.skipped}
        return {"step": self.step, "optimizer": self.optimizer.state_dict(), **scale}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where `state` was taken."""
        self.step = state["step"]
        self.optimizer.load_state_dict(state["optimizer"])
        self.loss_scale, self._good, self.skipped = state["loss_scale"], state["good"], state["skipped"]


def total_norm(gradients: Sequence[Tensor]) -> Tensor:
    """Norm [] over all gradients, on the device."""
    norms = torch._foreach_norm(list(gradients))  # type: ignore[attr-defined]
    return torch.linalg.vector_norm(torch.stack(norms))
