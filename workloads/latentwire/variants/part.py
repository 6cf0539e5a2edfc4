"""What variants have in common: the type of parts, and how far levels may move results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perfsweep.workloads.latentwire.reference import Reference as Part
else:
    Part = object  # plans and completion read declarations without torch; `arm` adds `Reference`

HALF: Mapping[str, float] = {
    "terms": 1e-2,
    "grad_norm": 1e-2,
    "gradient": 2e-2,
    "gradient_direction": 1e-3,
    "losses": 2e-2,
    "replay/*": 2e-2,
}
COMPILED: Mapping[str, float] = {"terms": 1e-5, "grad_norm": 1e-5, "gradient": 1e-5}
REDUCED: Mapping[str, float] = COMPILED  # summed over ranks in another order
UPDATED: Mapping[str, float] = {
    "terms": 1e-6,
    "grad_norm": 1e-6,
    "gradient": 1e-6,
}  # one update, in one kernel
