"""Attention of the frozen models by PyTorch's fused kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perfsweep.workloads import toggles as shared
from perfsweep.workloads.api import Level, Levels, Parity, Toggle
from perfsweep.workloads.latentwire.variants.part import HALF, Part
from perfsweep.workloads.variant import Variant

if TYPE_CHECKING:
    from perfsweep.workloads.latentwire.maths.attention import Attend


class Fused(Part):
    """Whichever kernel PyTorch chooses."""

    @property
    def attend(self) -> Attend:
        """Attention of the frozen models."""
        from perfsweep.workloads.latentwire.maths.attention import sdpa

        return sdpa


class Flash(Part):
    """The flash kernel where it can."""

    @property
    def attend(self) -> Attend:
        """Attention of the frozen models."""
        from perfsweep.workloads.latentwire.maths.attention import flash

        return flash


def _rounded_in_half(config: Any, levels: Levels) -> Parity | None:
    return Parity.TOLERANCE if levels["lm_dtype"] != "fp32" or levels["amp"] != "off" else None


VARIANTS = (
    Variant(
        Toggle(
            "attn",
            (
                Level("eager"),
                Level("sdpa", loosened=_rounded_in_half, witness="attention_kernels"),
                Level(
                    "flash",
                    parity=Parity.TOLERANCE,
                    bounds=HALF,
                    requires_any={"lm_dtype": ("bf16",), "amp": ("bf16", "fp16")},
                    unsupported=shared.needs_cuda,
                    witness="attention_kernels",
                ),
            ),
            "attention by an explicit matrix or a fused kernel",
            "Architecture 2",
        ),
        {"sdpa": Fused, "flash": Flash},
    ),
)
