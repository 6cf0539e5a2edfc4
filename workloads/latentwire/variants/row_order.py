"""Rows of like length together."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from perfsweep.workloads.api import Level, Parity, Toggle
from perfsweep.workloads.latentwire.variants.part import Part
from perfsweep.workloads.variant import Variant

if TYPE_CHECKING:
    from perfsweep.workloads.latentwire.data.batches import Shape


class Sorted(Part):
    """Rows are sorted by length inside a window, or across several."""

    def window_shape(self) -> Shape:
        """How windows are cut."""
        return dataclasses.replace(super().window_shape(), bucket=str(self.levels["bucket"]))


VARIANTS = (
    Variant(
        Toggle(
            "bucket",
            (
                Level("off"),
                Level("window", witness="padded_positions"),
                Level("global", parity=Parity.STOCHASTIC, witness="padded_positions"),
            ),
            "rows of like length together, inside one effective batch or across all",
            "Memory 2",
        ),
        others=Sorted,
    ),
)
