"""What parity finds, check by check, in the entries of evidence that a check is about, and what it allows.

A deviation may reach what the bound of a level says, else that of the check, else the rule of its class.
"""

from __future__ import annotations

import fnmatch
import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Protocol

import numpy as np

from perfsweep.workloads.api import Check, Comparator, Evidence, Parity


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


SEED_MARGIN = 0.01
"""Largest relative shift of a metric over paired seeds that counts as none, where a level states no other."""

_EXACT_BOUNDS = {"float64": 1e-12, "complex128": 1e-12, "float32": 1e-5, "complex64": 1e-5, "float16": 2e-3}
_TOLERANCE_BOUND = 1e-2
_TOLERANCE_COSINE = 1e-3
_CLASSES = (Parity.EXACT, Parity.TOLERANCE, Parity.STOCHASTIC)  # from strict to loose


class JudgedLevel(Protocol):
    """What bounds read of a level, as a workload declares it or as it is kept with the plan."""

    @property
    def parity(self) -> Parity: ...

    @property
    def bounds(self) -> Mapping[str, float]: ...


class Bounds(dict[str, float]):
    """Bounds by check name; those in `rounding` are at least the exact class's allowance for the dtype."""

    def __init__(
        self, bounds: Mapping[str, float] = MappingProxyType({}), rounding: Iterable[str] = ()
    ) -> None:
        super().__init__(bounds)
        self.rounding = frozenset(rounding)


def loosest(levels: Iterable[JudgedLevel], checks: Sequence[Check] = ()) -> tuple[Parity, Bounds]:
    """Class and bounds of an arm: of its non-baseline `levels` the loosest class, for each check the loosest.

    A level that states no bound for a check means the check's own bound or its class's rule: with amp (no
    bounds) and compile (loss within 1e-4) together, the loss may move by what amp allows; with a level that
    only reorders sums, with one whose own bound is tighter, by what reordering does in the evidence's dtype.
    """
    levels = tuple(levels)
    parity = max((level.parity for level in levels), key=_CLASSES.index, default=Parity.EXACT)
    by_name = {check.name: check for check in checks}
    bounds, rounding = {}, []
    for name in {name for level in levels for name in level.bounds}:
        check = by_name.get(name)
        meant = [level.bounds.get(name, _allowed_by(check, level)) for level in levels]
        bounds[name] = max(bound for bound in meant if bound is not None)
        if check is not None and None in meant:
            rounding.append(name)
    return parity, Bounds(bounds, rounding)


def _allowed_by(check: Check | None, level: JudgedLevel) -> float | None:
    """What a level without a bound for a check allows it; None where the evidence's dtype decides."""
    if level.parity is Parity.STOCHASTIC:
        return SEED_MARGIN
    if check is None or check.bound is not None:
        return check.bound if check else None
    return (
        None if level.parity is Parity.EXACT else _class_bound(check.comparator, Parity.TOLERANCE, "float64")
    )


def is_own(check: Check) -> bool:
    """Whether the evidence is itself a deviation, from an oracle inside the workload."""
    return check.against == "oracle" or check.comparator is Comparator.AT_MOST


def stated_bound(check: Check, name: str, bounds: Mapping[str, float]) -> float | None:
    """The bound a level states, else the check's own."""
    return bounds.get(name, bounds.get(check.name, check.bound))


def bound_of(
    check: Check,
    name: str,
    entry: np.ndarray,
    evidence: Evidence,
    parity: Parity,
    bounds: Mapping[str, float],
) -> float:
    """What a deviation may reach; `entry` is the baseline's, or for an oracle the deviation itself."""
    stated = stated_bound(check, name, bounds)
    if stated is None:
        return _rule_bound(check, name, entry, evidence, parity)
    if isinstance(bounds, Bounds) and check.name in bounds.rounding and not is_own(check):
        return max(stated, _rule_bound(check, name, entry, evidence, Parity.EXACT))
    return stated


def number_bound(
    name: str, check: Check | None, parity: Parity, bounds: Mapping[str, float]
) -> tuple[float, bool]:
    """What a number may depart by, with the check on it if there is one, and whether that is absolute."""
    comparator = check.comparator if check else Comparator.RELATIVE
    stated = stated_bound(check, name, bounds) if check else bounds.get(name)
    if stated is not None:
        return stated, comparator is Comparator.ABSOLUTE
    return _class_bound(comparator, parity, "float32"), False


def _rule_bound(check: Check, name: str, entry: np.ndarray, evidence: Evidence, parity: Parity) -> float:
    """What a class allows in the dtype of the evidence."""
    if entry.dtype.kind not in "fc":
        return 0.0
    allowed = _class_bound(
        check.comparator, parity, entry.dtype.name if name in evidence.tensors else _number_dtype(evidence)
    )
    if check.comparator is Comparator.ABSOLUTE and not is_own(check):
        finite = np.abs(entry[np.isfinite(entry)])
        return allowed * float(finite.max(initial=0.0))  # the rule of the class is relative
    return allowed


def _class_bound(comparator: Comparator, parity: Parity, dtype: str) -> float:
    """What a class allows where neither a level nor the check states a bound.

    Exact: rounding of reordered sums, relative to the norm of the whole tensor. Otherwise: what bfloat16
    products do.
    """
    if comparator in (Comparator.IDENTICAL, Comparator.AT_MOST):
        return 0.0
    if parity is Parity.EXACT:
        return _EXACT_BOUNDS.get(dtype, _EXACT_BOUNDS["float32"])
    return (
        _TOLERANCE_COSINE if comparator in (Comparator.COSINE, Comparator.WORST_COSINE) else _TOLERANCE_BOUND
    )


def _number_dtype(evidence: Evidence) -> str:
    """The precision of a number, which Python floats do not tell: that of the tensors next to it."""
    dtypes = {
        array.dtype.name for array in map(np.asarray, evidence.tensors.values()) if array.dtype.kind == "f"
    }
    return "float64" if dtypes == {"float64"} else "float32"
