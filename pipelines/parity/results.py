"""What comparing results comes to: a verdict on an arm, and the deviations that it rests on."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from perfsweep.workloads.api import Parity


class ParityVerdict(StrEnum):
    """What comparing an arm with its reference came to."""

    IDENTICAL = "identical"
    WITHIN_TOLERANCE = "within tolerance"
    EQUIVALENT = "equivalent over seeds"
    DIFFERENT = "different"
    UNCHECKED = "unchecked"


@dataclass(frozen=True)
class Deviation:
    """One compared piece of evidence.

    Attributes
    ----------
    check : name of the evidence
    value, bound : the deviation in the check's comparator, and what it may reach; `value` is infinite where
        nothing could be compared (missing, other shape, not finite), and then `where` says why
    where : first and worst entry, as indices
    excused : entries left out because the workload marked their deviation as legitimate
    """

    check: str
    value: float
    bound: float
    where: str
    ok: bool
    excused: int = 0

    @property
    def ratio(self) -> float:
        """Deviation in units of its bound; anything above a bound of zero is infinite."""
        if self.bound > 0:
            return self.value / self.bound
        return math.inf if self.value > 0 else 0.0

    def __str__(self) -> str:
        if math.isinf(self.value):
            return f"{self.check}: {self.where}"
        place = f" ({self.where})" if self.where else ""
        excused = f", {self.excused} entries excused" if self.excused else ""
        return f"{self.check}: {self.value:.3g} against {self.bound:.3g}{place}{excused}"


@dataclass(frozen=True)
class ParityResult:
    """Verdict on one arm. `worst` has the largest ratio of value to bound; `reason` may be empty."""

    verdict: ParityVerdict
    parity_class: Parity
    worst: Deviation | None = None
    deviations: tuple[Deviation, ...] = ()
    reason: str = ""
