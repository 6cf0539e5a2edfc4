"""What variants have in common: the type of parts, and how far levels may move results."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from perfsweep.workloads.api import Level, LevelValue

if TYPE_CHECKING:
    from perfsweep.workloads.prover.reference import Reference as Part
else:
    Part = object  # plans and completion read declarations without torch; `arm` adds `Reference`

INTEGERS: Mapping[str, float] = {"log_prob": 0.0}  # the products see the same numbers in the same order
REORDERED: Mapping[str, float] = {"log_prob": 1e-4}
# Rounding may turn a choice, and with it everything that follows: such candidates are counted, not forbidden.
ROUNDED: Mapping[str, float] = {
    "log_prob": 1e-2,
    "success": math.inf,
    "depth": math.inf,
    "actions": math.inf,
    "rank": math.inf,
    "mrr": math.inf,
    "hits*": math.inf,
}
COMPILED: Mapping[str, tuple[LevelValue, ...]] = {"compile": ("default", "reduce_overhead", "max_autotune")}


def reordered(value: LevelValue, witness: str, **own: Any) -> Level:
    """A level that adds up in another order."""
    return Level(value, bounds=REORDERED, witness=witness, **own)


def integers(value: LevelValue, witness: str, **own: Any) -> Level:
    """A level that changes integers alone."""
    return Level(value, bounds=INTEGERS, witness=witness, **own)
