"""Everything that can be switched in the probe solver, a file for each family of toggles.

To read a toggle, read its file; to add one, add a `Variant` to a file. Every level but the first names a
*witness*, a counter that differs from the baseline's when the level acts. Declarations import no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfsweep.workloads.api import Levels
from perfsweep.workloads.probe1d.variants import (
    by_latent,
    host_work,
    participation,
    precision,
    row_walk,
    solver,
    starting_point,
    step_metric,
)

if TYPE_CHECKING:
    from perfsweep.workloads.probe1d.reference import Reference

FAMILIES = (solver, participation, row_walk, step_metric, precision, by_latent, starting_point, host_work)
VARIANTS = {variant.toggle.name: variant for family in FAMILIES for variant in family.VARIANTS}
TOGGLES = tuple(variant.toggle for variant in VARIANTS.values())


def arm(levels: Levels) -> type[Reference]:
    """The naive path with what the levels of an arm replace.

    What a level requires, and what is listed before it, is replaced first: it may build on that.
    """
    from perfsweep.workloads.probe1d.reference import Reference

    chosen = sorted(VARIANTS.values(), key=lambda variant: variant.depth(levels, VARIANTS))
    parts = [part for variant in chosen if (part := variant.part(levels))]
    return type("Arm", (*reversed(parts), Reference), {})
