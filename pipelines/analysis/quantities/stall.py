"""Loader stall: the share of the iteration in which the device waits for data."""

from __future__ import annotations

import dataclasses

from pipelines.analysis.quantities.paired import Paired
from pipelines.analysis.quantities.quantity import Measured, Quantity, QuantityResult, Withheld
from pipelines.analysis.quantities.steps import steps_of
from pipelines.config.declared import declared_by
from pipelines.store.progress import StoredTrial
from pipelines.store.records import Effect, Sweep

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

    def of_effect(self, effect: Effect) -> QuantityResult:
        """Estimate the ratio of the shares; people read both of them."""
        own, base = (self.of_arm(arm) for arm in effect.pairs[0])
        result = super().of_effect(effect)
        if isinstance(own, Withheld) or isinstance(base, Withheld) or len(effect.pairs) > 1:
            return result
        return dataclasses.replace(result, text=f"{stall_text(own)}\nfrom {stall_text(base)}")


def stall_text(share: float) -> str:
    """A share of the time."""
    return f"{share:.1%}".replace("%", " %")


STALL = Quantity(
    key="stall",
    heading="stall",
    arm_heading="stall",
    doc="share of the iteration in which the device waits for data, its base's below",
    source=Stall,
    text=stall_text,
)
