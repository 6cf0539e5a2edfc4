"""Everything that can be switched in the probe solver, a file for each family of toggles.

To read a toggle, read its file; to add one, add a `Variant` to a file. Every level but the first names a
*witness*, a counter that differs from the baseline's when the level acts. Declarations import no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfsweep.workloads import variant
from perfsweep.workloads.api import Levels
from perfsweep.workloads.probe1d.variants import (
    by_latent,
    host_work,
    participation,
    row_walk,
    solver,
    starting_point,
    step_metric,
)

if TYPE_CHECKING:
    from perfsweep.workloads.probe1d.reference import Reference

FAMILIES = (solver, participation, row_walk, step_metric, by_latent, starting_point, host_work)
VARIANTS = {one.toggle.name: one for family in FAMILIES for one in family.VARIANTS}
TOGGLES = tuple(one.toggle for one in VARIANTS.values())


def arm(levels: Levels) -> type[Reference]:
    """The naive path with what the levels of an arm replace."""
    from perfsweep.workloads.probe1d.reference import Reference

    return variant.arm(Reference, levels, VARIANTS)
