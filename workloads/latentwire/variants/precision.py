"""Sixteen bits for frozen weights or for all products, and the kernels that make products."""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack
from typing import TYPE_CHECKING, Any

from perfsweep.workloads import toggles as shared
from perfsweep.workloads.api import Parity, Toggle
from perfsweep.workloads.latentwire.variants.part import HALF, Part
from perfsweep.workloads.variant import Variant, choices

if TYPE_CHECKING:
    from torch import Tensor

    from perfsweep.workloads.latentwire.maths.lm import CausalLM

GROWTH_INTERVAL = 2000  # good steps until the scale of the loss is doubled


class StoredInHalf(Part):
    """Frozen weights in bfloat16, rounded once."""

    def store(self, lm: CausalLM) -> None:
        """Round them."""
        import torch

        lm.to(torch.bfloat16)


class Autocast(Part):
    """Passes of encoder, student and teacher under autocast."""

    def autocast(self) -> AbstractContextManager[Any]:
        """What passes run under."""
        from perfsweep.workloads.training.precision import autocast

        return autocast(str(self.levels["amp"]), self.device)


class Scaled(Autocast):
    """The loss is scaled, as its gradients underflow in 16 bits; nothing of it is read on the host."""

    @property
    def first_scale(self) -> float:
        """What losses are multiplied by at first."""
        return 2.0**16

    def scaled(self, loss: Tensor) -> Tensor:
        """A loss as its backward pass takes it."""
        return loss * self.loss_scale

    def unscale(self, gradients: list[Tensor]) -> None:
        """Take the scale out of gradients."""
        import torch

        torch._foreach_mul_(gradients, 1 / self.loss_scale)  # type: ignore[attr-defined]

    def adjust_scale(self, broken: Tensor) -> None:
        """Halve the scale after an overflow, double it after many good steps."""
        import torch

        self.good = (self.good + 1) * (1 - broken)
        grow = self.good >= GROWTH_INTERVAL
        self.loss_scale = self.loss_scale * torch.where(broken > 0, 0.5, torch.where(grow, 2.0, 1.0))
        self.good = torch.where(grow, 0.0, self.good)


class OwnProducts(Part):
    """Hand-written kernels make the products of a step."""

    def products(self, endings: ExitStack) -> AbstractContextManager[Any]:
        """What a step's products are made under."""
        from perfsweep.workloads.products import NativeProducts

        return NativeProducts(endings, self.counts)


VARIANTS = (
    Variant(
        Toggle(
            "lm_dtype",
            choices("fp32", "bf16", parity=Parity.TOLERANCE, bounds=HALF, witness="lm_bytes"),
            "type of the frozen models' weights",
            "7",
        ),
        {"bf16": StoredInHalf},
    ),
    Variant(
        shared.amp(
            every={"bounds": HALF, "witness": "low_precision_ops"},
            each={"fp16": {"unsupported": shared.needs_cuda}},
            source="7",
        ),
        {"bf16": Autocast, "fp16": Scaled},
    ),
    Variant(shared.products(), {"native": OwnProducts}),
)
