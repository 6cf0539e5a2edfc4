"""What variants have in common: the type of parts, refusals, and an exponent that compiled code can take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perfsweep.workloads.api import Levels
from perfsweep.workloads.spd.config import SpdConfig

if TYPE_CHECKING:
    from torch import Tensor

    from perfsweep.workloads.spd.reference import Reference as Part
else:
    Part = object  # plans and completion read declarations without torch; `arm` adds `Reference`

WRAPPED: dict[str, Any] = {"requires": {"patching": ("wrapper",)}}


def no_stages(config: SpdConfig, levels: Levels) -> str | None:
    """Reason why a level that begins or ends in the middle of the target cannot act, or None."""
    own = config.target is not None
    return "of a network of your own (workload.target) no stages and no head are known" if own else None


def moves_sources(config: SpdConfig, levels: Levels) -> str | None:
    """Reason why a level that moves sources otherwise cannot act, or None."""
    own = any(loss.persistent for loss in config.recipe.losses)
    return (
        "sources of persistent terms move as workload.adversary says, in the host's program" if own else None
    )


class TensorExponent(Part):
    """The exponent as a tensor, where compiled code or a graph must not be made again for each value."""

    p: Tensor

    def build(self) -> None:
        """Make the tensor []."""
        import torch

        super().build()
        self.p = torch.zeros((), dtype=self.dtype, device=self.device)

    def schedule(self) -> float:
        """Fill it for the coming iteration."""
        from perfsweep.workloads.spd.maths.losses import annealed_p

        self.p.fill_(annealed_p(self.recipe, self.step))
        return super().schedule()

    def exponent(self) -> Tensor:
        """The tensor."""
        return self.p
