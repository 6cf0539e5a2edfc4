"""The slices of a timed region, between which the arms of a round take turns."""

from __future__ import annotations

from collections.abc import Callable

from perfsweep.pipelines.store.trial_schema import TrialSpec
from perfsweep.pipelines.trial.timing.iterations import iterate, whole_cadences
from perfsweep.workloads.api import NullClock, Workload

SHORT_SLICE = 5
"""Iterations up to which a slice begins with a timed one, whatever others have left in the caches."""


class Slices:
    """The parts of a region: how many iterations each has, and what comes before it."""

    def __init__(
        self, workload: Workload, spec: TrialSpec, others: Callable[[], None] | None, discarded: int
    ) -> None:
        self._workload, self._others, self._discarded = workload, others, discarded
        iterations = whole_cadences(workload, spec.timed_iterations)
        self.sizes = self.cut(iterations, spec.measure.slices if others else 1)

    @staticmethod
    def cut(iterations: int, parts: int) -> list[int]:
        """Iterations of each part, as equal as they can be, and none without one."""
        parts = min(parts, iterations)
        return [iterations * (part + 1) // parts - iterations * part // parts for part in range(parts)]

    @property
    def shared(self) -> bool:
        """Whether other arms take turns with this region."""
        return self._others is not None

    def begin(self, part: int) -> int:
        """Let others work, and then meet what they left in the caches; the iterations that this took.

        A short slice has none to spare.
        """
        if part and self._others is not None:
            self._others()
        if self.sizes[part] <= SHORT_SLICE * self._discarded and self.shared:
            return 0
        iterate(self._workload, NullClock(), self._discarded)
        return self._discarded
