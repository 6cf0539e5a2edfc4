"""The quantities that `report.columns` may choose, in the order of `store.options.COLUMNS`."""

from __future__ import annotations

from collections.abc import Iterable

from perfsweep.pipelines.analysis.quantities.cost import COST, JOB_COST
from perfsweep.pipelines.analysis.quantities.joules import ENERGY
from perfsweep.pipelines.analysis.quantities.quantity import Quantity
from perfsweep.pipelines.analysis.quantities.stall import STALL
from perfsweep.pipelines.analysis.quantities.tails import TAILS
from perfsweep.pipelines.analysis.quantities.to_target import TARGET, TARGET_STEPS

QUANTITIES: tuple[Quantity, ...] = (ENERGY, COST, JOB_COST, *TAILS, STALL, TARGET, TARGET_STEPS)
"""A new one is added here and to `store.options.COLUMNS`, by which configurations are checked."""


def chosen(keys: Iterable[str]) -> tuple[Quantity, ...]:
    """Look up the quantities that a report shows, in the order in which they were chosen."""
    known = {one.key: one for one in QUANTITIES}
    return tuple(known[key] for key in dict.fromkeys(keys) if key in known)
