"""What parity finds, check by check, and the entries of evidence that a check is about."""

from __future__ import annotations

import fnmatch
import hashlib
import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from perfsweep.workloads.api import Evidence, Parity


class ParityVerdict(StrEnum):
    """The result of comparing an arm with its baseline."""

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


def names_of(pattern: str, evidence: Evidence) -> list[str]:
    """Evidence that a check speaks of, in the workload's order; ``grad/*`` means every gradient."""
    names = (*evidence.tensors, *evidence.numbers)
    return [
        name for name in names if name == pattern or ("*" in pattern and fnmatch.fnmatchcase(name, pattern))
    ]


def entry_of(evidence: Evidence, name: str) -> np.ndarray | None:
    """Read a piece of evidence; None where there is none of the name."""
    if name in evidence.tensors:
        return np.asarray(evidence.tensors[name])
    return np.asarray(evidence.numbers[name], dtype=np.float64) if name in evidence.numbers else None


def digest(array: np.ndarray) -> str:
    """SHA-256 over dtype, shape and bytes."""
    text = f"{array.dtype.str}{array.shape}".encode()
    return hashlib.sha256(text + np.ascontiguousarray(array).tobytes()).hexdigest()


def digests_of(evidence: Evidence) -> dict[str, str]:
    """Digest each piece of evidence."""
    entries = {name: entry_of(evidence, name) for name in (*evidence.tensors, *evidence.numbers)}
    return {name: digest(entry) for name, entry in entries.items() if entry is not None}
