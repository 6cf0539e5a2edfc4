"""Greedy answers of all rows together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfsweep.workloads.api import Toggle
from perfsweep.workloads.latentwire.variants.part import Part
from perfsweep.workloads.variant import Variant, choices

if TYPE_CHECKING:
    from perfsweep.workloads.latentwire.maths.greedy_decoding import Decoder


class DecodedTogether(Part):
    """One pass for the next token of every row."""

    @property
    def decoder(self) -> type[Decoder]:
        """Greedy answers."""
        from perfsweep.workloads.latentwire.maths.greedy_decoding import BatchDecoder

        return BatchDecoder


VARIANTS = (
    Variant(
        Toggle(
            "decode",
            choices("per_row", "batched", witness="decode_calls"),
            "greedy answers row by row, or together",
        ),
        {"batched": DecodedTogether},
    ),
)
