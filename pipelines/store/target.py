"""The target of a training, and after how many iterations a course of looks at its figure reached it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from perfsweep.pipelines.store.options import MeasureConfig


@dataclass(frozen=True)
class Target:
    """When a training is good enough.

    Attributes
    ----------
    figure, value : number of the workload, and what it has to reach
    rising : whether it has to rise to the value
    every : iterations between two looks
    looks : in a row, whose mean counts
    steps : iterations after which the target is missed
    """

    figure: str
    value: float
    rising: bool
    every: int
    looks: int
    steps: int

    @classmethod
    def of(cls, measure: MeasureConfig) -> Target | None:
        """Read the target of a sweep; None where it has none."""
        if measure.target is None:
            return None
        return cls(
            figure=measure.target_figure,
            value=measure.target,
            rising=measure.target_better == "higher",
            every=measure.target_every,
            looks=measure.target_looks,
            steps=measure.target_steps,
        )

    def __str__(self) -> str:
        return f"{self.figure.replace('_', ' ')} {'>=' if self.rising else '<='} {self.value:g}"

    @property
    def last_look(self) -> int:
        """Iterations of the last look; one at least, however few are allowed."""
        return max(1, self.steps // self.every) * self.every

    def steps_in(self, course: Mapping[int, Mapping[str, float]]) -> int | None:
        """Find the iterations after which a course reached the target; None where it has not."""
        looks = sorted(course)
        for end in range(self.looks, len(looks) + 1):
            values = [course[at].get(self.figure, math.nan) for at in looks[end - self.looks : end]]
            mean = sum(values) / self.looks
            if mean >= self.value if self.rising else mean <= self.value:
                return looks[end - 1]
        return None

    def decided_by(self, course: Mapping[int, Mapping[str, float]]) -> bool:
        """Whether a course tells when it reached this target: it has all looks until then, or until the last.

        One that was followed for another target, or with other looks, may not.
        """
        reached = self.steps_in(course)
        needed = range(self.every, (reached or self.last_look) + 1, self.every)
        return sorted(at for at in course if at <= needed[-1]) == list(needed) and all(
            self.figure in course[at] for at in needed
        )
