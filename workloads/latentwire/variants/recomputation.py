"""Activations that the backward pass computes again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfsweep.workloads import toggles as shared
from perfsweep.workloads.latentwire.variants.part import Part
from perfsweep.workloads.variant import Variant

if TYPE_CHECKING:
    from perfsweep.workloads.latentwire.maths.encoder import LatentEncoder
    from perfsweep.workloads.latentwire.maths.trainables import Trained
    from perfsweep.workloads.latentwire.presets import LMConfig


class LayersAgain(Part):
    """Whole layers, of the encoder too."""

    @property
    def recompute(self) -> str:
        """What the backward pass computes again of a layer."""
        return "on"

    def trainables(self, shapes: list[LMConfig]) -> tuple[LatentEncoder, list[Trained]]:
        """The encoder, whose layers are computed again."""
        encoder, trained = super().trainables(shapes)
        encoder.bytes.recompute = True
        return encoder, trained


class MLPsAgain(Part):
    """The MLPs of the frozen models."""

    @property
    def recompute(self) -> str:
        """What the backward pass computes again of a layer."""
        return "selective"


VARIANTS = (
    Variant(
        shared.grad_checkpointing(
            "off", "on", "selective", every={"witness": "saved_bytes"}, source="Architecture 1"
        ),
        {"on": LayersAgain, "selective": MLPsAgain},
    ),
)
