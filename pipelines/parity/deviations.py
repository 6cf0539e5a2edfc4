"""How far results are from an oracle's or a reference's, check by check."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from perfsweep.pipelines.parity.bounds import bound_of, is_own, stated_bound
from perfsweep.pipelines.parity.distances import Distance, distance
from perfsweep.pipelines.parity.entries import entry_of, names_of
from perfsweep.pipelines.parity.results import Deviation
from perfsweep.workloads.api import Check, Comparator, Evidence, Parity


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
