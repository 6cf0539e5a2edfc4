"""Whether timing trials computed what was checked: their numbers against those of the same iterations.

Evidence stops early, and an arm may go wrong after it, or only where it is timed. So each arm has a course
trial: it runs as far as the longest timing trial, and asks for the workload's cheap numbers at the iterations
at which timing trials ended. An arm's course is compared with the baseline's, and its timing trials with its
own course. The course of a job is the numbers of its evidence trial.
"""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Protocol

from perfsweep.pipelines.parity.results import Deviation, is_own, number_bound
from perfsweep.pipelines.store.schema import Kind, Manifest, Outcome, Pack
from perfsweep.pipelines.store.trial_schema import TrialRecord
from perfsweep.workloads.api import Check, Parity

UNITS = "units"
SPREADS = 3.0
"""A number may differ by this many times its spread over rounds or seeds of the baseline."""
SEEDS = (1, 2)
"""Offsets of the seeds for further courses of the baseline; they run where an arm differs from the first."""
SMALLEST = 1e-3
"""A number is compared relative to the baseline's, and never to less than this part of its largest."""

Numbers = Mapping[str, float]
Course = Mapping[int, Numbers]


class Trial(Protocol):
    """A trial's record, and the folder that its evidence lies in."""

    @property
    def folder(self) -> Path: ...

    @property
    def record(self) -> TrialRecord: ...


class Trials(Protocol):
    """Trials of a sweep: timing trials that ended well by arm, course trials and evidence of further seeds by
    arm and offset, and the others.
    """

    @property
    def timed(self) -> Mapping[str, Sequence[TrialRecord]]: ...

    @property
    def courses(self) -> Mapping[tuple[str, int], Sequence[TrialRecord]]: ...

    @property
    def other(self) -> Mapping[tuple[str, Kind], Trial]: ...

    @property
    def seeds(self) -> Mapping[tuple[str, int], Trial]: ...


@dataclass(frozen=True)
class Asked:
    """A course trial to run: an arm, the offset of its seed, the iterations, and which copy it is."""

    arm: str
    seed: int
    at: tuple[int, ...]
    copy: int = 0


@dataclass(frozen=True)
class Allowed:
    """What an arm may depart by: its class, its bounds, the checks of the workload."""

    parity: Parity
    bounds: Mapping[str, float]
    checks: Sequence[Check]

    def of(self, name: str) -> tuple[float, bool]:
        """The bound of a number, and whether it is absolute."""
        fits = (c for c in self.checks if not is_own(c) and fnmatch.fnmatchcase(name, c.name))
        return number_bound(name, next(fits, None), self.parity, self.bounds)


@dataclass(frozen=True)
class TimedParity:
    """What the numbers of an arm's timing trials came to.

    Attributes
    ----------
    departure : what makes the arm different, None where nothing does
    note : what a reader should know otherwise
    doubts : trials that would say more, where an arm departs
    """

    departure: Deviation | None = None
    note: str = ""
    doubts: tuple[Asked, ...] = ()


class TimedNumbers:
    """The numbers of the timing and course trials of one sweep."""

    def __init__(self, manifest: Manifest, trials: Trials) -> None:
        self._references = frozenset(manifest.sweep.references.values())
        self._trials = trials

    def missing(self, pack: Pack, retry: Iterable[Outcome] = ()) -> list[Asked]:
        """List the course trials that a pack lacks after its rounds; one that failed is no longer asked."""
        asked = []
        for arm in pack.arms:
            at = self._iterations(pack, arm)
            tried = self._trials.courses.get((arm, 0), ())
            failed = any(one.outcome is not Outcome.OK and one.outcome not in retry for one in tried)
            if not failed and not set(at) <= self.course(arm).keys():
                asked.append(Asked(arm, 0, at))
        return asked

    def _iterations(self, pack: Pack, arm: str) -> tuple[int, ...]:
        """Where the timing trials of an arm ended; of a reference, where those of all arms of a pack did."""
        arms = pack.arms if arm in self._references else (arm,)
        return tuple(
            sorted({one.reached for name in arms for one in self._trials.timed.get(name, ()) if one.reached})
        )

    def course(self, arm: str, seed: int = 0) -> dict[int, Numbers]:
        """Numbers of an arm by iteration; of a job those of its evidence, as those of iteration 0."""
        found: dict[int, Numbers] = {}
        for one in self._trials.courses.get((arm, seed), ()):
            found |= one.course
        evidence = self._trials.other.get((arm, Kind.EVIDENCE))
        if not seed and evidence and evidence.record.reached is not None and evidence.record.numbers:
            found.setdefault(evidence.record.reached, evidence.record.numbers)
        return found

    def judge(self, arm: str, reference: str, allowed: Allowed, excused: bool = False) -> TimedParity:
        """Hold an arm's course against a reference's, and its timing trials against its own course.

        With `excused`, because the baseline itself fails an oracle, the arm may differ from it.
        """
        if arm != reference:
            against = self._against(arm, reference, allowed, units_only=excused)
            if against.departure or against.doubts:
                return against
        return self._beside_itself(arm, reference, allowed)

    def _against(self, arm: str, reference: str, allowed: Allowed, *, units_only: bool) -> TimedParity:
        """An arm's course against the baseline's; after random draws only units can be compared."""
        ours, theirs = self.course(arm), self.course(reference)
        units_only |= allowed.parity is Parity.STOCHASTIC
        seeds = [course for seed in SEEDS if (course := self.course(reference, seed))]
        spreads = self._own_spreads(reference)
        worst, doubts = None, False
        for at in sorted(ours.keys() & theirs.keys()):
            for name in sorted(ours[at].keys() & theirs[at].keys()):
                if name == UNITS:
                    off = _fewer(ours[at][name], theirs[at][name], at, "the baseline's")
                elif units_only:
                    continue
                else:
                    floor = SPREADS * max(spreads.get(name, 0.0), _seed_spread(name, at, theirs, seeds))
                    off = _departure(name, at, ours, theirs, allowed, floor, "the baseline's")
                    doubts |= off is not None and math.isfinite(off.value)
                worst = max(filter(None, (worst, off)), key=lambda one: one.ratio, default=None)
        missing = [seed for seed in SEEDS if not self._trials.courses.get((reference, seed))]
        at = tuple(sorted(at for at in theirs if at))
        if doubts and missing and at:
            return TimedParity(worst, doubts=tuple(Asked(reference, seed, at) for seed in missing))
        return TimedParity(worst)

    def _own_spreads(self, arm: str) -> dict[str, float]:
        """The furthest that each number of timing trials lies from the arm's own course."""
        course, spreads = self.course(arm), {}
        for one in self._trials.timed.get(arm, ()):
            for name, value in course.get(-1 if one.reached is None else one.reached, {}).items():
                gap = abs(one.numbers.get(name, value) - value)
                if math.isfinite(gap):
                    spreads[name] = max(gap, spreads.get(name, 0.0))
        return spreads

    def _beside_itself(self, arm: str, reference: str, allowed: Allowed) -> TimedParity:
        """An arm's timing trials against its own course: all depart, some do, or none."""
        course = self.course(arm)
        trials = [one for one in self._trials.timed.get(arm, ()) if one.reached in course]
        spreads = self._own_spreads(reference) if arm != reference else {}
        departures = [_departures(one, course, spreads, allowed) for one in trials]
        departed = [worst for worst in departures if worst]
        if not departed:
            return TimedParity()
        worst = max(departed, key=lambda one: one.ratio)
        process = f"depends on the hash seed or the process: {worst.where}"
        if len(departed) < len(trials) or self._varies(arm, trials, allowed):
            return TimedParity(note=process)
        copies = [one for one in self._trials.courses.get((arm, 0), ()) if one.outcome is Outcome.OK]
        at = tuple(sorted(at for at in course if at))
        doubts = (Asked(arm, 0, at, copy=1),) if len(copies) == 1 and at else ()
        return TimedParity(worst, doubts=doubts)

    def _varies(self, arm: str, trials: Sequence[TrialRecord], allowed: Allowed) -> bool:
        """Whether trials that are alike, of either kind, differ among themselves."""
        alike = [(one.reached or 0, one.numbers) for one in trials]
        alike += [(at, n) for one in self._trials.courses.get((arm, 0), ()) for at, n in one.course.items()]
        kinds = (alike[: len(trials)], alike[len(trials) :])
        return any(
            _departure(name, at, {at: a}, {at: b}, allowed, 0.0, "")
            for kind in kinds
            for (at, a), (other, b) in combinations(kind, 2)
            if at == other
            for name in a.keys() & b.keys()
        )


def _departures(record: TrialRecord, course: Course, spreads: Numbers, allowed: Allowed) -> Deviation | None:
    """The furthest that a timing trial departs from its arm's course."""
    at = record.reached or 0
    departures = [
        _departure(
            name,
            at,
            {at: record.numbers},
            course,
            allowed if name != UNITS else Allowed(Parity.EXACT, {}, ()),
            SPREADS * spreads.get(name, 0.0),
            "untimed",
            "timed ",
        )
        for name in sorted(record.numbers.keys() & course[at].keys())
    ]
    return max(filter(None, departures), key=lambda one: one.ratio, default=None)


def _fewer(ours: float, theirs: float, at: int, whose: str) -> Deviation | None:
    """The deviation of an arm that does less work than the baseline: such an arm is not faster."""
    if ours >= theirs * (1 - 1e-9):
        return None
    where = f"{UNITS} are {ours:g}{_after(at)}, and {whose} {theirs:g}"
    return Deviation(UNITS, 1 - ours / theirs, 0.0, where, False)


def _departure(
    name: str,
    at: int,
    ours: Course,
    theirs: Course,
    allowed: Allowed,
    floor: float,
    whose: str,
    own: str = "",
) -> Deviation | None:
    """How far a number is from another, where that is further than it may be."""
    a, b = ours[at][name], theirs[at][name]
    if a == b or not math.isfinite(b):
        return None
    sizes = (abs(numbers[name]) for numbers in theirs.values() if name in numbers)
    scale = max(abs(b), SMALLEST * max(filter(math.isfinite, sizes), default=0.0)) or 1.0
    bound, absolute = allowed.of(name)
    limit = max(bound * (1.0 if absolute else scale), floor) / scale
    value = abs(a - b) / scale if math.isfinite(a) else math.inf
    where = f"{own}{name} is {a:.6g}{_after(at)}, and {whose} {b:.6g}"
    return Deviation(name, value, limit, where, False) if value > limit else None


def _after(at: int) -> str:
    return f" after {at} iterations" if at else " at the end of the job"


def _seed_spread(name: str, at: int, course: Course, seeds: Sequence[Course]) -> float:
    """The range of a number over the baseline's seeds at an iteration; 0 with one seed."""
    drawn = [numbers[at][name] for numbers in (course, *seeds) if name in numbers.get(at, {})]
    return max(drawn) - min(drawn) if len(drawn) > 1 and all(map(math.isfinite, drawn)) else 0.0
