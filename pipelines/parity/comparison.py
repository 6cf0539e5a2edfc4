"""Whether an arm computed what the reference computed.

Evidence of two arms is compared check by check. The class of a level says how far it may move results: not at
all or by rounding (exact), by the precision it chose (tolerance), or by other random draws (stochastic),
where single runs say nothing and paired seeds decide by two one-sided tests. All arithmetic is done in
float64.
"""

from __future__ import annotations

import fnmatch
import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from pipelines.parity.bounds import SEED_MARGIN, bound_of, is_own, loosest, stated_bound
from pipelines.parity.distances import Distance, distance
from pipelines.statistics.equivalence import Equivalence, tost
from workloads.api import Check, Comparator, Evidence, Parity

__all__ = [
    "Deviation",
    "Equivalence",
    "ParityResult",
    "ParityVerdict",
    "digest",
    "judge",
    "judge_seeds",
    "loosest",
    "tost",
]


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


def judge(
    reference: Evidence | None,
    arm: Evidence | None,
    checks: Sequence[Check],
    parity: Parity,
    bounds: Mapping[str, float],
    units_expected: float | None = None,
    units_done: float | None = None,
) -> ParityResult:
    """Compare the evidence of one run of an arm with that of the reference.

    `parity` and `bounds` are the arm's (`loosest`). A check's bound is the first of: the arm's for its name,
    its own, the rule of class and dtype. Without a reference only checks against an oracle are judged; that
    is also how the reference itself is judged. Where the reference fails an oracle, an arm that meets every
    oracle may depart from it.

    A number carries no dtype of its own: it is held to double precision where every floating tensor of the
    reference is float64, and to single precision otherwise.
    """
    if arm is None:
        return ParityResult(ParityVerdict.UNCHECKED, parity, reason="there is no evidence of this arm")
    if units_expected is not None and units_done is not None and units_done < units_expected * (1 - 1e-9):
        return ParityResult(
            ParityVerdict.DIFFERENT, parity, reason=f"did {units_done:g} of {units_expected:g} units"
        )
    oracles = _oracle_deviations(arm, checks, parity, bounds)
    compared, unjudged = _compare_all(reference, arm, checks, parity, bounds)
    failed = failed_oracles(reference, checks)
    if (
        reference
        and not unjudged
        and compared
        and _digests(reference) == _digests(arm)
        and all(map(_comparable, compared + oracles))
    ):
        verdict, reason = ParityVerdict.IDENTICAL, _note(failed)
    else:
        verdict, reason = _decide(compared, oracles, unjudged, failed, parity)
    deviations = tuple(compared + oracles)
    return ParityResult(
        verdict, parity, max(deviations, key=lambda d: d.ratio, default=None), deviations, reason
    )


def failed_oracles(reference: Evidence | None, checks: Sequence[Check]) -> list[Deviation]:
    """What an oracle holds against the reference itself."""
    return (
        [d for d in _oracle_deviations(reference, checks, Parity.EXACT, {}) if not d.ok] if reference else []
    )


def _compare_all(
    reference: Evidence | None,
    arm: Evidence,
    checks: Sequence[Check],
    parity: Parity,
    bounds: Mapping[str, float],
) -> tuple[list[Deviation], list[str]]:
    """Deviations from the reference, and the checks that neither arm has evidence for."""
    compared: list[Deviation] = []
    unjudged = []
    for check in checks:
        if not is_own(check):
            found = _reference_deviations(reference, arm, check, parity, bounds) if reference else []
            compared += found
            unjudged += [] if found else [check.name]
    return compared, unjudged


def _note(reference_fails: Sequence[Deviation]) -> str:
    return f"the reference itself fails an oracle: {reference_fails[0]}" if reference_fails else ""


def _comparable(deviation: Deviation) -> bool:
    return math.isfinite(deviation.value)


def _decide(
    compared: Sequence[Deviation],
    oracles: Sequence[Deviation],
    unjudged: Sequence[str],
    reference_fails: Sequence[Deviation],
    parity: Parity,
) -> tuple[ParityVerdict, str]:
    """Verdict and reason from deviations in the declared order of their checks."""
    departed = [deviation for deviation in compared if not deviation.ok]
    beyond = [deviation for deviation in oracles if not deviation.ok]
    # An arm that reproduces the reference inherits its failure against an oracle but must not add one.
    inherited = {deviation.check for deviation in reference_fails} if compared else set()
    if own := [d for d in beyond if d.check not in inherited or not _comparable(d)]:
        return ParityVerdict.DIFFERENT, f"fails its oracle: {own[0]}"
    if departed:
        if reference_fails and not beyond and all(map(_comparable, departed)):
            return (
                ParityVerdict.WITHIN_TOLERANCE,
                f"{_note(reference_fails)}; this arm departs from it and meets every oracle",
            )
        return ParityVerdict.DIFFERENT, f"departs from the reference: {departed[0]}"
    if unjudged:
        return ParityVerdict.UNCHECKED, f"no evidence to compare for {', '.join(unjudged)}"
    if not compared and not oracles:
        return ParityVerdict.UNCHECKED, "the workload declares no checks"
    if parity is Parity.STOCHASTIC and compared:
        return ParityVerdict.UNCHECKED, "needs paired seeds"
    return ParityVerdict.WITHIN_TOLERANCE, _note(reference_fails)


def _oracle_deviations(
    evidence: Evidence, checks: Sequence[Check], parity: Parity, bounds: Mapping[str, float]
) -> list[Deviation]:
    """The largest entry of each piece of evidence that an oracle already compared."""
    deviations = []
    for check in filter(is_own, checks):
        for name in _names(check.name, evidence) or [check.name]:
            entry = _entry(evidence, name)
            if entry is None:
                deviations.append(_broken(name, 0.0, "there is no such evidence"))
                continue
            deviations.append(_largest(name, entry, bound_of(check, name, entry, evidence, parity, bounds)))
    return deviations


def _largest(name: str, entry: np.ndarray, bound: float) -> Deviation:
    if not entry.size:
        return _broken(name, bound, "is empty")
    worst = int(np.argmax(entry))  # the first NaN, where there is one
    value = float(entry.reshape(-1)[worst])
    if not math.isfinite(value):
        return _broken(name, bound, f"is {value}")
    return Deviation(name, value, bound, _index(entry.shape, worst), value <= bound)


def _reference_deviations(
    reference: Evidence, arm: Evidence, check: Check, parity: Parity, bounds: Mapping[str, float]
) -> list[Deviation]:
    """Deviations of a check: several where its name is a pattern, none where neither arm has the evidence."""
    deviations = []
    for name in dict.fromkeys(_names(check.name, reference) + _names(check.name, arm)):
        ours, theirs = _entry(arm, name), _entry(reference, name)
        if ours is None or theirs is None:
            deviations.append(_broken(name, 0.0, f"missing in the {'arm' if ours is None else 'reference'}"))
            continue
        bound = bound_of(check, name, theirs, reference, parity, bounds)
        excuse = _excuse(check, reference, arm, theirs.shape)
        if isinstance(excuse, str):
            deviations.append(_broken(name, bound, excuse))
            continue
        # Integers, booleans and text have no rounding to allow for.
        exact = stated_bound(check, name, bounds) is None and theirs.dtype.kind not in "fc"
        comparator = Comparator.IDENTICAL if exact else check.comparator
        deviations.append(
            _deviation(name, comparator, bound, theirs, ours, excuse, parity, reference.parts.get(name, {}))
        )
    return deviations


def _deviation(
    name: str,
    comparator: Comparator,
    bound: float,
    reference: np.ndarray,
    arm: np.ndarray,
    excuse: np.ndarray | None,
    parity: Parity,
    parts: Mapping[str, int],
) -> Deviation:
    found = distance(comparator, reference, arm, excuse, bound)
    if isinstance(found, str):
        return _broken(name, bound, found)
    # A single run of a stochastic level may differ by any amount; only what cannot be compared counts.
    ok = found.value <= bound or parity is Parity.STOCHASTIC
    place = _place(found, reference.shape, ok, parts)
    return Deviation(name, found.value, bound, place, ok, found.excused)


def _place(found: Distance, shape: tuple[int, ...], ok: bool, parts: Mapping[str, int]) -> str:
    """Where the largest deviation is and, in a series, where deviations begin."""
    if found.worst is None or not shape:
        return ""
    if parts:
        return f"worst in {_part(found.worst, parts)}"
    worst = f"worst at {_index(shape, found.worst)}"
    if ok or found.first is None or len(shape) > 1:
        return worst
    return f"first at {_index(shape, found.first)}, {worst}"


def _part(entry: int, parts: Mapping[str, int]) -> str:
    """The named piece of a flat tensor that an entry belongs to."""
    for name, length in parts.items():
        if entry < length:
            return name
        entry -= length
    return "?"


def _index(shape: tuple[int, ...], flat: int) -> str:
    return str([int(i) for i in np.unravel_index(flat, shape)]) if shape else ""


def _names(pattern: str, evidence: Evidence) -> list[str]:
    """Evidence that a check speaks of, in the workload's order; ``grad/*`` means every gradient."""
    names = (*evidence.tensors, *evidence.numbers)
    return [
        name for name in names if name == pattern or ("*" in pattern and fnmatch.fnmatchcase(name, pattern))
    ]


def _entry(evidence: Evidence, name: str) -> np.ndarray | None:
    if name in evidence.tensors:
        return np.asarray(evidence.tensors[name])
    return np.asarray(evidence.numbers[name], dtype=np.float64) if name in evidence.numbers else None


def _excuse(
    check: Check, reference: Evidence, arm: Evidence, shape: tuple[int, ...]
) -> np.ndarray | str | None:
    """Entries [shape of the evidence] that may deviate on either side, or why they cannot be known."""
    if check.excused is None:
        return None
    masks = [
        mask for mask in (_entry(reference, check.excused), _entry(arm, check.excused)) if mask is not None
    ]
    if not masks:
        return f"neither arm has the mask {check.excused} that excuses deviations"
    excuse = np.zeros(shape, dtype=bool)
    for mask in masks:
        # A mask per row excuses whole rows.
        if mask.dtype != bool or mask.shape != shape[: mask.ndim]:
            return (
                f"the mask {check.excused} is {mask.dtype}{list(mask.shape)} and does not fit {list(shape)}"
            )
        excuse |= mask.reshape(mask.shape + (1,) * (len(shape) - mask.ndim))
    return excuse


def _broken(name: str, bound: float, why: str) -> Deviation:
    return Deviation(name, math.inf, bound, why, False)


def digest(array: np.ndarray) -> str:
    """SHA-256 over dtype, shape and bytes."""
    text = f"{array.dtype.str}{array.shape}".encode()
    return hashlib.sha256(text + np.ascontiguousarray(array).tobytes()).hexdigest()


def _digests(evidence: Evidence) -> dict[str, str]:
    entries = {name: _entry(evidence, name) for name in (*evidence.tensors, *evidence.numbers)}
    return {name: digest(entry) for name, entry in entries.items() if entry is not None}


def judge_seeds(
    reference: Sequence[Evidence],
    arm: Sequence[Evidence],
    checks: Sequence[Check],
    parity: Parity,
    bounds: Mapping[str, float],
) -> ParityResult:
    """Compare runs of arm and reference that pairwise share seed, start and data order.

    Exact and tolerance levels must pass with every seed. For stochastic levels, metrics are tested for
    equivalence: every check on a number or, where there is none, the checks that `bounds` names, tensors by
    their mean. The bound is the margin, relative to the reference's mean.
    """
    results = [judge(r, a, checks, parity, bounds) for r, a in zip(reference, arm, strict=True)]
    for seed, result in enumerate(results):
        if result.verdict is ParityVerdict.DIFFERENT:
            return replace(result, reason=f"pair of seeds {seed}: {result.reason}")
    if (
        not results
        or parity is not Parity.STOCHASTIC
        or all(r.verdict is ParityVerdict.IDENTICAL for r in results)
    ):
        return _least_certain(results, parity)
    runs = (*reference, *arm)
    names = [
        check.name
        for check in checks
        if not is_own(check) and all(_entry(run, check.name) is not None for run in runs)
    ]
    metrics = [name for name in names if name in reference[0].numbers] or [
        name for name in names if name in bounds
    ]
    if not metrics:
        remedy = f"; a margin for one is stated as bounds: {{{names[0]}: 0.05}}" if names else ""
        reason = f"no check is on a number that seeds could be compared by{remedy}"
        return ParityResult(ParityVerdict.UNCHECKED, parity, reason=reason)
    margins = {name: bounds.get(name, SEED_MARGIN) for name in metrics}
    return _over_seeds({name: _paired(reference, arm, name, margins[name]) for name in metrics})


def _least_certain(results: Sequence[ParityResult], parity: Parity) -> ParityResult:
    order = (ParityVerdict.UNCHECKED, ParityVerdict.WITHIN_TOLERANCE, ParityVerdict.IDENTICAL)
    none = ParityResult(ParityVerdict.UNCHECKED, parity, reason="there are no pairs of seeds")
    return min(results, key=lambda result: order.index(result.verdict), default=none)


def _paired(reference: Sequence[Evidence], arm: Sequence[Evidence], name: str, margin: float) -> Equivalence:
    """Differences of one metric relative to the reference's mean, tested against the margin."""
    before = [float(np.mean(_entry(evidence, name))) for evidence in reference]  # type: ignore[arg-type]
    after = [float(np.mean(_entry(evidence, name))) for evidence in arm]  # type: ignore[arg-type]
    scale = abs(float(np.mean(before))) or 1.0
    return tost([(a - b) / scale for a, b in zip(after, before, strict=True)], margin)


def _over_seeds(tests: Mapping[str, Equivalence]) -> ParityResult:
    """All metrics must be equivalent: requiring every test to reject needs no correction for their number."""
    deviations = tuple(_seed_deviation(name, test) for name, test in tests.items())
    worst = max(deviations, key=lambda deviation: deviation.ratio)
    for equivalent, verdict in _SEED_VERDICTS.items():
        for name, test in tests.items():
            if test.equivalent is equivalent:
                return ParityResult(verdict, Parity.STOCHASTIC, worst, deviations, _seed_reason(name, test))
    return ParityResult(ParityVerdict.UNCHECKED, Parity.STOCHASTIC)


# The first that any metric has is the verdict on the arm.
_SEED_VERDICTS = {
    False: ParityVerdict.DIFFERENT,
    None: ParityVerdict.UNCHECKED,
    True: ParityVerdict.EQUIVALENT,
}


def _seed_deviation(name: str, test: Equivalence) -> Deviation:
    reach = max(abs(test.low), abs(test.high))
    return Deviation(
        name, reach, test.margin, f"mean {test.mean:+.3g} over {test.seeds} seeds", test.equivalent is True
    )


def _seed_reason(name: str, test: Equivalence) -> str:
    moved = (
        f"{name} moves by {test.mean:+.2%} [{test.low:+.2%}, {test.high:+.2%}] over {test.seeds} pairs of"
        " seeds"
    )
    allowed = f"{moved}, margin {test.margin:.2%}"
    return f"{allowed}: {test.seeds_needed} pairs would decide" if test.equivalent is None else allowed
