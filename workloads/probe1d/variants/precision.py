"""In which type events are evaluated, and in which their sums are kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfsweep.workloads.api import Level, Parity, Toggle
from perfsweep.workloads.probe1d.claims import OPEN
from perfsweep.workloads.probe1d.variants.part import Part
from perfsweep.workloads.variant import Variant

if TYPE_CHECKING:
    from perfsweep.workloads.probe1d.maths.precision import Precision

PRECISION = Toggle(
    "precision",
    (
        Level("f32"),
        Level("f64", Parity.TOLERANCE, witness="events_f64"),
        Level("f32acc64", Parity.TOLERANCE, witness="sums_acc64"),
    ),
    "type of events and of their sums",
    OPEN,
)


class OtherTypes(Part):
    """The types of the level."""

    @property
    def precision(self) -> Precision:
        """Of events and their sums."""
        from perfsweep.workloads.probe1d.maths.precision import PRECISIONS

        return PRECISIONS[str(self.levels["precision"])]


VARIANTS = (Variant(PRECISION, others=OtherTypes),)
