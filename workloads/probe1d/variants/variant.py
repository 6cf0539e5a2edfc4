"""A variant: a toggle, and what each of its levels replaces in `Reference`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from perfsweep.workloads.api import Levels, LevelValue, Toggle

if TYPE_CHECKING:
    from perfsweep.workloads.probe1d.reference import Reference as Part
else:
    Part = object  # plans and completion read declarations without torch; `arm` adds `Reference`

__all__ = ["Part", "Variant"]


@dataclass(frozen=True)
class Variant:
    """A toggle with its parts: classes whose methods replace those of `Reference`, and import what they need.

    Attributes
    ----------
    parts : a part for each level that replaces something
    others : that of every level but the first which is not in `parts`, such as a number of one's own
    """

    toggle: Toggle
    parts: Mapping[LevelValue, type[Part]] = field(default_factory=dict)
    others: type[Part] | None = None

    def part(self, levels: Levels) -> type[Part] | None:
        """What the level of this toggle replaces; None: nothing."""
        level = levels[self.toggle.name]
        if level in self.parts or level == self.toggle.levels[0].value:
            return self.parts.get(level)
        return self.others

    def depth(self, levels: Levels, variants: Mapping[str, Variant]) -> int:
        """How many levels, one built on the other, the level of this toggle is built on."""
        required = self.toggle.level(levels[self.toggle.name]).requires
        return max((1 + variants[name].depth(levels, variants) for name in required), default=0)
