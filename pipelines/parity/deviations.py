"""Whether an arm computed what the baseline computed.

Evidence of two arms is compared check by check. The class of a level says how far it may move results: not
at all or by rounding (exact), by the precision it chose (tolerance), or by other random draws (stochastic),
where single runs say nothing and paired seeds decide: see `evidence`. All arithmetic is done in float64: a
float32 cosine over many entries comes out above 1 and would pass any bound, and squaring overflows long
before values do: hence chords between scaled vectors.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from perfsweep.pipelines.parity.results import (
    Deviation,
    ParityResult,
    ParityVerdict,
    bound_of,
    digests_of,
    entry_of,
    is_own,
    names_of,
    stated_bound,
)
from perfsweep.workloads.api import Check, Comparator, Evidence, Parity


def judge(
    reference: Evidence | None,
    arm: Evidence | None,
    checks: Sequence[Check],
    parity: Parity,
    bounds: Mapping[str, float],
    units_expected: float | None = None,
    units_done: float | None = None,
) -> ParityResult:
    """Compare the evidence of one run of an arm with that of the baseline.

    `parity` and `bounds` are the arm's (`loosest`). A check's bound is the first of: the arm's for its name,
    its own, the rule of class and dtype. Without a `reference` only checks against an oracle are judged; the
    baseline itself is judged in this way too. If the baseline fails an oracle, an arm that meets every oracle
    may differ from it.

    A number has no dtype: it is judged at double precision if every floating tensor of the baseline is
    float64, else at single precision.
    """
    if arm is None:
        return ParityResult(ParityVerdict.UNCHECKED, parity, reason="there is no evidence of this arm")
    if units_expected is not None and units_done is not None and units_done < units_expected * (1 - 1e-9):
        return ParityResult(
            ParityVerdict.DIFFERENT, parity, reason=f"did {units_done:g} of {units_expected:g} units"
        )
    oracles = oracle_deviations(arm, checks, parity, bounds)
    compared, unjudged = _compare_all(reference, arm, checks, parity, bounds)
    failed = failed_oracles(reference, checks)
    if (
        reference
        and not unjudged
        and compared
        and digests_of(reference) == digests_of(arm)
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
    """How far the baseline itself deviates from an oracle."""
    return (
        [d for d in oracle_deviations(reference, checks, Parity.EXACT, {}) if not d.ok] if reference else []
    )


def _compare_all(
    reference: Evidence | None,
    arm: Evidence,
    checks: Sequence[Check],
    parity: Parity,
    bounds: Mapping[str, float],
) -> tuple[list[Deviation], list[str]]:
    """Deviations from the baseline, and the checks that neither arm has evidence for."""
    compared: list[Deviation] = []
    unjudged = []
    for check in checks:
        if not is_own(check):
            found = reference_deviations(reference, arm, check, parity, bounds) if reference else []
            compared += found
            unjudged += [] if found else [check.name]
    return compared, unjudged


def _note(reference_fails: Sequence[Deviation]) -> str:
    return f"the baseline itself fails an oracle: {reference_fails[0]}" if reference_fails else ""


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
    # An arm that reproduces the baseline inherits its failure against an oracle but must not add one.
    inherited = {deviation.check for deviation in reference_fails} if compared else set()
    if own := [d for d in beyond if d.check not in inherited or not _comparable(d)]:
        return ParityVerdict.DIFFERENT, f"fails its oracle: {own[0]}"
    if departed:
        if reference_fails and not beyond and all(map(_comparable, departed)):
            return (
                ParityVerdict.WITHIN_TOLERANCE,
                f"{_note(reference_fails)}; this arm departs from it and meets every oracle",
            )
        return ParityVerdict.DIFFERENT, f"departs from the baseline: {departed[0]}"
    if unjudged:
        return ParityVerdict.UNCHECKED, f"no evidence to compare for {', '.join(unjudged)}"
    if not compared and not oracles:
        return ParityVerdict.UNCHECKED, "the workload declares no checks"
    if parity is Parity.STOCHASTIC and compared:
        return ParityVerdict.UNCHECKED, "needs paired seeds"
    return ParityVerdict.WITHIN_TOLERANCE, _note(reference_fails)


def oracle_deviations(
    evidence: Evidence, checks: Sequence[Check], parity: Parity, bounds: Mapping[str, float]
) -> list[Deviation]:
    """The largest entry of each piece of evidence that an oracle already compared."""
    deviations = []
    for check in filter(is_own, checks):
        for name in names_of(check.name, evidence) or [check.name]:
            entry = entry_of(evidence, name)
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


def reference_deviations(
    reference: Evidence, arm: Evidence, check: Check, parity: Parity, bounds: Mapping[str, float]
) -> list[Deviation]:
    """Deviations of a check: several where its name is a pattern, none where neither arm has the evidence."""
    deviations = []
    for name in dict.fromkeys(names_of(check.name, reference) + names_of(check.name, arm)):
        ours, theirs = entry_of(arm, name), entry_of(reference, name)
        if ours is None or theirs is None:
            deviations.append(_broken(name, 0.0, f"missing in the {'arm' if ours is None else 'baseline'}"))
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


def _excuse(
    check: Check, reference: Evidence, arm: Evidence, shape: tuple[int, ...]
) -> np.ndarray | str | None:
    """Entries [shape of the evidence] that may deviate on either side, or why they cannot be known."""
    if check.excused is None:
        return None
    masks = [
        mask
        for mask in (entry_of(reference, check.excused), entry_of(arm, check.excused))
        if mask is not None
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


_TINY = 1e-300  # keeps zero against zero at distance zero, and nothing else
_HUGE = 1e300  # relative to nothing; infinite is what could not be compared
_FAMILIES = {
    "b": "boolean",
    "i": "integer",
    "u": "integer",
    "f": "floating",
    "c": "complex",
    "U": "text",
    "S": "text",
}


@dataclass(frozen=True)
class Distance:
    """A deviation and where it is.

    Attributes
    ----------
    value : deviation in the comparator
    worst : flat index of the entry that differs most, None where none differs
    first : flat index of the first entry that by itself exceeds the bound
    excused : number of entries left out
    """

    value: float
    worst: int | None
    first: int | None
    excused: int


def distance(
    comparator: Comparator, reference: np.ndarray, arm: np.ndarray, excuse: np.ndarray | None, bound: float
) -> Distance | str:
    """Deviation of `arm` from `reference` over the entries that the boolean array `excuse` does not mark.

    Returns a phrase instead where nothing can be compared: another shape or kind of number, NaN on either
    side, an infinity that the baseline does not have, or every entry excused. Excuses do not cover values
    that are not finite.
    """
    if problem := _incomparable(reference, arm):
        return problem
    excused = 0 if excuse is None else int(np.count_nonzero(excuse))
    if excused and excused == reference.size:
        return f"all {excused} entries are excused, which leaves nothing to compare"
    if comparator is Comparator.IDENTICAL:
        gaps = (reference != arm).astype(np.float64)
    else:
        reference, arm = _same_shape(reference, excuse), _same_shape(arm, excuse)
        scaled = {Comparator.COSINE: _unit, Comparator.WORST_COSINE: _unit_rows}.get(comparator, np.asarray)
        gaps = np.abs(scaled(arm) - scaled(reference))
    if excuse is not None:
        gaps = np.where(excuse, 0.0, gaps)
    worst = int(np.argmax(gaps)) if gaps.any() else None
    beyond = (gaps > _limits(comparator, bound, reference)).reshape(-1)
    first = int(np.argmax(beyond)) if beyond.any() else None
    return Distance(_value(comparator, gaps, reference, arm), worst, first, excused)


def _limits(comparator: Comparator, bound: float, reference: np.ndarray) -> float | np.ndarray:
    """What a single entry may differ by; an angle belongs to the whole array."""
    if comparator is Comparator.RELATIVE:
        return bound * np.abs(reference)
    if comparator in (Comparator.COSINE, Comparator.WORST_COSINE):
        return np.inf
    return 0.0 if comparator is Comparator.IDENTICAL else bound


def _value(comparator: Comparator, gaps: np.ndarray, reference: np.ndarray, arm: np.ndarray) -> float:
    if comparator is Comparator.IDENTICAL:
        return float(np.count_nonzero(gaps))
    if comparator is Comparator.RELATIVE:
        return min(_norm(gaps) / (_norm(reference) + _TINY), _HUGE)
    if comparator is Comparator.COSINE:
        # 1 - cos = |u - v|^2 / 2 for unit vectors: never negative, and exact where 1 - cos would cancel.
        return 1.0 if bool(reference.any()) != bool(arm.any()) else _norm(gaps) ** 2 / 2
    if comparator is Comparator.WORST_COSINE:
        pairs = zip(_rows(gaps), _rows(reference), _rows(arm), strict=True)
        return max((_value(Comparator.COSINE, *row) for row in pairs), default=0.0)
    return float(gaps.max(initial=0.0))


def _incomparable(reference: np.ndarray, arm: np.ndarray) -> str | None:
    if reference.shape != arm.shape:
        return f"has shape {list(arm.shape)}, and the baseline has {list(reference.shape)}"
    kinds = [_FAMILIES.get(array.dtype.kind, array.dtype.name) for array in (reference, arm)]
    if kinds[0] != kinds[1]:
        return f"is {kinds[1]}, and the baseline is {kinds[0]}"
    if kinds[0] not in ("floating", "complex"):
        return None
    for array, whose in ((reference, "the baseline"), (arm, "the arm")):
        if nans := int(np.count_nonzero(np.isnan(array))):
            return f"is NaN in {nans} of {array.size} entries of {whose}"
    infinite = np.isinf(reference) | np.isinf(arm)
    # Equal infinities, such as masked scores, are intended; any other infinity is new or lost.
    strange = int(np.count_nonzero(reference[infinite] != arm[infinite]))
    return f"is infinite in {strange} entries where the baseline has another value" if strange else None


def _same_shape(array: np.ndarray, excuse: np.ndarray | None) -> np.ndarray:
    """In double precision, with zeros where both sides are infinite or excused."""
    wide = array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)
    dropped = np.isinf(wide) if excuse is None else np.isinf(wide) | excuse
    return np.where(dropped, 0.0, wide)


def _norm(array: np.ndarray) -> float:
    """Euclidean norm that neither overflows nor underflows."""
    scale = float(np.abs(array).max(initial=0.0))
    return scale * float(np.linalg.norm((array / scale).reshape(-1))) if scale else 0.0


def _rows(array: np.ndarray) -> np.ndarray:
    """As a matrix whose rows are the last dimension."""
    return array.reshape(-1, array.shape[-1]) if array.ndim else array.reshape(1, 1)


def _unit_rows(array: np.ndarray) -> np.ndarray:
    return np.array([_unit(row) for row in _rows(array)]).reshape(array.shape)


def _unit(array: np.ndarray) -> np.ndarray:
    scale = float(np.abs(array).max(initial=0.0))
    if not scale:
        return array
    return array / scale / _norm(array / scale)
