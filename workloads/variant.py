"""A variant: a toggle, and what each of its levels replaces in the reference of a study."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from perfsweep.workloads.api import Level, Levels, LevelValue, Toggle

Reference = TypeVar("Reference")


def choices(baseline: LevelValue, *others: LevelValue, **own: Any) -> tuple[Level, ...]:
    """A baseline, and other levels that have all of `own` in common."""
    return Level(baseline), *(Level(value, **own) for value in others)


@dataclass(frozen=True)
class Variant:
    """A toggle with its parts: classes whose methods replace those of a reference.

    Declarations import no torch: parts have no base class until `arm` makes them part of one, and import what
    they need where they need it.

    Attributes
    ----------
    parts : a part for each level that replaces something
    others : the part of every level but the first that is not in `parts`, such as a number of the user's
    """

    toggle: Toggle
    parts: Mapping[LevelValue, type[Any]] = field(default_factory=dict)
    others: type[Any] | None = None

    def part(self, levels: Levels) -> type[Any] | None:
        """What the level of this toggle replaces; None: nothing."""
        level = levels[self.toggle.name]
        if level in self.parts or level == self.toggle.levels[0].value:
            return self.parts.get(level)
        return self.others

    def depth(self, levels: Levels, variants: Mapping[str, Variant]) -> int:
        """How many levels, one built on the other, the level of this toggle is built on.

        Of two levels that require each other none is built on the other.
        """
        required = [variants[name] for name in self._requires(levels)]
        own = [one for one in required if self.toggle.name not in one._requires(levels)]
        return max((1 + one.depth(levels, variants) for one in own), default=0)

    def _requires(self, levels: Levels) -> Mapping[str, object]:
        return self.toggle.level(levels[self.toggle.name]).requires


def arm(reference: type[Reference], levels: Levels, variants: Mapping[str, Variant]) -> type[Reference]:
    """The naive path with what the levels of an arm replace.

    What a level requires, and what is listed before it, is replaced first: it may build on that.

    Parameters
    ----------
    variants : by the names of their toggles
    """
    chosen = sorted(variants.values(), key=lambda variant: variant.depth(levels, variants))
    parts = [part for variant in chosen if (part := variant.part(levels))]
    made: Any = type("Arm", (*reversed(parts), reference), {})
    return made
