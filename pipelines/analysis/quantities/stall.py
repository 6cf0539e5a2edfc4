"""Loader stall: the share of the iteration in which the device waits for data."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from perfsweep.pipelines.analysis.quantities.paired import Paired
from perfsweep.pipelines.analysis.quantities.quantity import Measured, Quantity, QuantityResult, Withheld
from perfsweep.pipelines.analysis.quantities.steps import steps_of
from perfsweep.pipelines.config.declared import declared_by
from perfsweep.pipelines.statistics.estimates import Estimate
from perfsweep.pipelines.statistics.log_ratios import Cell, Rounds, Weighted
from perfsweep.pipelines.store.progress import StoredTrial
from perfsweep.pipelines.store.records import Effect, Sweep

NO_LOADER = "no step marks where it waits for data: there is no loader, or none that is seen"


class Stall(Paired):
    """Shares of timing trials; beside that of an arm stands that of its base, since a share has no factor."""

    def __init__(self, measured: Measured) -> None:
        phases = declared_by(measured.manifest).data_phases

        def read(trial: StoredTrial, sweep: Sweep) -> float | Withheld:
            found = steps_of(trial.folder)
            if isinstance(found, Withheld):
                return found
            waits = [found.phases[name] for name in phases if name in found.phases]
            if not waits:
                return Withheld(NO_LOADER)
            return float(sum(own.sum() for own in waits) / found.times_ns.sum())

        super().__init__(measured, "the stall", read)
        self._estimates = {arm: share_estimate(cells) for arm, cells in self.positive_cells().items()}

    def of_arm(self, arm: str) -> float | Withheld:
        """Give the share that the interval is around; without one, the median of the rounds."""
        return math.exp(self._estimates[arm].log_ratio) if self.bounds_of(arm) else super().of_arm(arm)

    def bounds_of(self, arm: str) -> tuple[float, float] | None:
        """Give the ends of the share's interval; None of a single round, or of one without any stall."""
        estimate = self._estimates.get(arm)
        if estimate is None or estimate.interval is None:
            return None
        low, high = estimate.interval.ratios
        return low, min(high, 1.0)

    def of_effect(self, effect: Effect) -> QuantityResult:
        """Estimate the ratio of the shares; people read both of them."""
        arm, base_arm = effect.pairs[0]
        own, base = self.of_arm(arm), self.of_arm(base_arm)
        result = super().of_effect(effect)
        if isinstance(own, Withheld) or isinstance(base, Withheld) or len(effect.pairs) > 1:
            return result
        interval = STALL.interval_text(self.bounds_of(arm))
        lines = (stall_text(own), interval, f"from {stall_text(base)}")
        return dataclasses.replace(result, text="\n".join(filter(None, lines)))


WHOLE = "the whole iteration"


def share_estimate(cells: Sequence[Cell]) -> Estimate:
    """Estimate the log of an arm's share from those of its rounds, as an effect of the part on the whole.

    A share is a ratio within a round, so that what slows a whole round down is not in it.
    """
    whole = (dataclasses.replace(cell, arm=WHOLE, value=1.0) for cell in cells)
    rounds = Rounds([*cells, *whole], "the stall")
    return rounds.estimate(Weighted({cells[0].arm: 1.0, WHOLE: -1.0}))


def stall_text(share: float) -> str:
    """A share of the time."""
    return f"{share:.1%}".replace("%", " %")


STALL = Quantity(
    key="stall",
    heading="stall",
    arm_heading="stall",
    doc="share of the iteration in which the device waits for data, with its interval, and its base's below",
    source=Stall,
    text=stall_text,
    of_wall_time=True,
)
