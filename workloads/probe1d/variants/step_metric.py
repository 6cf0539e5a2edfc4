"""The statistic that scales w in the step metric, and in which types events and their sums are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfsweep.workloads.api import Level, Parity, Toggle
from perfsweep.workloads.probe1d.claims import OPEN
from perfsweep.workloads.probe1d.variants.part import Part
from perfsweep.workloads.variant import Variant

if TYPE_CHECKING:
    from torch import Tensor

    from perfsweep.workloads.probe1d.data.problem import Constants, Csr
    from perfsweep.workloads.probe1d.maths.precision import Precision

QX_STAT = Toggle(
    "qx_stat",
    (
        Level("rms"),
        Level("rms_free", witness="qx_passes"),
        *(Level(name, Parity.TOLERANCE, witness="metric_changed") for name in ("meanabs", "max", "p95")),
    ),
    "statistic that scales w in the step metric",
    OPEN,
)


class FreeRms(Part):
    """The root mean square comes from sums that are made anyway."""

    def scaled(self, x: Csr, sums: Constants) -> Constants:
        """As they are."""
        return sums


class OtherStatistic(FreeRms):
    """Another statistic, by a pass of its own."""

    def metric(self, x: Csr, sums: Constants) -> Tensor:
        """That of the level."""
        from perfsweep.workloads.probe1d.maths.levenberg_marquardt import metric_scale

        return metric_scale(x, str(self.levels["qx_stat"]), sums.count, sums.scale, self.counts)


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


VARIANTS = (
    Variant(QX_STAT, {"rms_free": FreeRms}, others=OtherStatistic),
    Variant(PRECISION, others=OtherTypes),
)
