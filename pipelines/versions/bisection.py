"""Which commit to look at next, until the first one with a property is found; pure.

Commits form a line, oldest first. As in every bisection, all commits from the first one with the property on
are assumed to have it, and no commit before. A commit that does not run, or that no measurement decides, is
skipped for a neighbour; where a skipped commit touches the change, the answer is a range.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Mark(StrEnum):
    """What is known of a commit."""

    WITHOUT = "without"
    WITH = "with"
    SKIPPED = "skipped"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class Bisection:
    """A line of `length` commits, the last of which has the property, and the marks of those looked at."""

    length: int
    marks: Mapping[int, Mark]

    @property
    def suspects(self) -> range:
        """Places of the commits one of which is the first with the property."""
        last_without = max((place for place, mark in self.marks.items() if mark is Mark.WITHOUT), default=-1)
        with_it = [place for place, mark in self.marks.items() if mark is Mark.WITH]
        return range(last_without + 1, min([*with_it, self.length - 1]) + 1)

    @property
    def next(self) -> int | None:
        """Place of the commit to look at: the nearest to the middle of those not seen; None at the end."""
        suspects = self.suspects
        middle = suspects.start + (len(suspects) - 1) // 2
        left = [place for place in suspects[:-1] if place not in self.marks]
        return min(left, key=lambda place: (abs(place - middle), place), default=None)

    @property
    def steps_left(self) -> int:
        """How many looks are left if each can be decided."""
        unseen = sum(place not in self.marks for place in self.suspects[:-1])
        return math.ceil(math.log2(unseen + 1))

    def marked(self, place: int, mark: Mark) -> Bisection:
        """The same with one more mark."""
        return Bisection(self.length, {**self.marks, place: mark})
