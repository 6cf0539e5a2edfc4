"""What a part of Probe1D's arms is to a type checker: a reference with some methods replaced."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perfsweep.workloads.probe1d.reference import Reference as Part
else:
    Part = object  # plans and completion read declarations without torch; `arm` adds `Reference`

__all__ = ["Part"]
