"""What the encoder reads and how, answers' padding, and how loud soft tokens are made."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from perfsweep.workloads import toggles as shared
from perfsweep.workloads.api import Levels, Parity, Toggle
from perfsweep.workloads.latentwire.variants.part import Part
from perfsweep.workloads.variant import Variant, choices

if TYPE_CHECKING:
    from torch import Tensor

    from perfsweep.workloads.latentwire.data.batches import Piece, Shape
    from perfsweep.workloads.latentwire.maths.encoder import LatentEncoder
    from perfsweep.workloads.latentwire.maths.frozen import Model
    from perfsweep.workloads.latentwire.maths.trainables import Trained
    from perfsweep.workloads.latentwire.presets import LMConfig


class SourcesTrimmed(Part):
    """Bytes are padded to the longest row of a piece."""

    def window_shape(self) -> Shape:
        """How windows are cut."""
        return dataclasses.replace(super().window_shape(), trim=True)


class Packed(Part):
    """Rows without any padding, through a kernel that takes them so."""

    def trainables(self, shapes: list[LMConfig]) -> tuple[LatentEncoder, list[Trained]]:
        """The encoder with the kernel, built here rather than inside the first step."""
        from perfsweep.workloads.latentwire.kernels import native_attention

        encoder, trained = super().trainables(shapes)
        native_attention.build()
        encoder.pack(native_attention.attention)
        return encoder, trained

    def latents(self, piece: Piece) -> Tensor:
        """z [B, M, d_z]"""
        self.counts["encoder_kernels"] += len(self.encoder.bytes.layers) + 1
        return super().latents(piece)


class AnswersTrimmed(Part):
    """Answers are padded to the longest of a piece, in steps of four."""

    def window_shape(self) -> Shape:
        """How windows are cut."""
        return dataclasses.replace(super().window_shape(), trim_answers=True)


class CalibratedOnce(Part):
    """The embedding table is read when the training begins."""

    def loudness(self, model: Model) -> Tensor | float:
        """Root mean square of the embedding table before any rounding."""
        return model.rho


def _other_dropout(config: Any, levels: Levels) -> Parity | None:
    return Parity.STOCHASTIC if config.dropout else None


VARIANTS = (
    Variant(
        Toggle(
            "encoder_trim",
            choices("full_512", "batch_max", witness="encoder_positions"),
            "encode all bytes, or as many as the longest row has",
            "Architecture 3",
        ),
        {"batch_max": SourcesTrimmed},
    ),
    Variant(
        Toggle(
            "encoder_attn",
            choices(
                "sdpa",
                "native",
                unsupported=shared.needs_host_compiler,
                loosened=_other_dropout,
                witness="encoder_kernels",
            ),
            "the encoder by PyTorch's kernels over padded rows, or by one for its narrow heads over rows"
            " without padding",
            "Architecture 3",
        ),
        {"native": Packed},
    ),
    Variant(
        Toggle(
            "answer_trim",
            choices(
                "full",
                "batch_max",
                conflicts={"compile": ("block", "reduce_overhead")},
                witness="student_positions",
            ),
            "answers padded to their limit, or to the longest of the batch in steps of four",
        ),
        {"batch_max": AnswersTrimmed},
    ),
    Variant(
        Toggle(
            "calibration",
            choices("per_step", "once", witness="table_reads"),
            "the scale of the embedding table in every step, or once",
            "Architecture 3",
        ),
        {"once": CalibratedOnce},
    ),
)
