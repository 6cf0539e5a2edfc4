"""Whether arms computed what their reference computed: reads evidence, and says what is still needed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from perfsweep.pipelines.parity.deviations import failed_oracles, judge
from perfsweep.pipelines.parity.results import (
    SEED_MARGIN,
    Deviation,
    ParityResult,
    ParityVerdict,
    entry_of,
    is_own,
    loosest,
)
from perfsweep.pipelines.parity.timed import Allowed, Asked, TimedNumbers, TimedParity, Trial, Trials
from perfsweep.pipelines.statistics.estimates import Equivalence, tost
from perfsweep.pipelines.store.schema import (
    IDEAL_LOADER,
    Arm,
    DeclaredLevel,
    Effect,
    Kind,
    Manifest,
    Outcome,
    Pack,
    declared_by,
)
from perfsweep.pipelines.store.trial_schema import REPEAT
from perfsweep.workloads.api import REPLAY, REPLAYED, Check, Evidence, Parity
from perfsweep.workloads.errors import RecordError

MORE_SEEDS = 3
"""Pairs of seeds added where the planned ones leave equivalence open."""

NO_CHOICE = "trains on its first batches again and again: what a loader that never waits would buy, no choice"

_DOUBT = (
    ParityVerdict.DIFFERENT,
    ParityVerdict.UNCHECKED,
    ParityVerdict.EQUIVALENT,
    ParityVerdict.WITHIN_TOLERANCE,
    ParityVerdict.IDENTICAL,
)
"""From the worst parity of an arm to the best."""


OTHER_DRAWS = (
    "its data differ from the base's, since random draws, such as augmentation, come from other generators:"
    " results are compared over seeds"
)


class Agreement:
    """The evidence of one sweep.

    Attributes
    ----------
    notes : evidence that could not be read
    """

    def __init__(self, manifest: Manifest, trials: Trials, read: Callable[[Path], Evidence]) -> None:
        """`read` gives the evidence in the folder of a trial, or raises RecordError."""
        self._manifest, self._trials, self._read = manifest, trials, read
        self._declared = declared_by(manifest)
        # First: a single iteration says more than where whole runs end.
        self._checks = (REPLAY, *self._declared.checks)
        self._evidence: dict[tuple[str, int], Evidence | None] = {}
        self._results: dict[tuple[str, str], ParityResult] = {}
        self._timed = TimedNumbers(manifest, trials)
        self._compared = [effect for effect in manifest.effects if effect.design != IDEAL_LOADER]
        self.notes: list[str] = []

    def of(self, effect: Effect) -> ParityResult:
        """The worst of the arms that an effect is made of: of a single pair the arm, else all of them."""
        if effect.design == IDEAL_LOADER:
            return ParityResult(ParityVerdict.UNCHECKED, Parity.EXACT, reason=NO_CHOICE)
        reference = self.reference(effect)
        alone = len(effect.pairs) == 1 and not effect.contrast
        arms = [effect.pairs[0][0]] if alone else list(effect.weights)
        return min(
            (self.between(arm, reference) for arm in arms), key=lambda result: _DOUBT.index(result.verdict)
        )

    def reference(self, effect: Effect) -> str:
        """The arm that an effect's results are held against."""
        references = self._manifest.sweep.references
        return references[effect.reference or next(iter(references))]

    def between(self, arm_id: str, reference_id: str) -> ParityResult:
        """An arm against a reference, in the loosest class of the levels that set them apart."""
        if (arm_id, reference_id) not in self._results:
            arm, reference = self._manifest.arm(arm_id), self._manifest.arm(reference_id)
            result = self._as_timed(arm, reference, self._judged(arm, reference))
            if result.verdict is ParityVerdict.DIFFERENT:
                result = self._unrepeatable(arm, reference) or result
            self._results[arm_id, reference_id] = result
        return self._results[arm_id, reference_id]

    def _unrepeatable(self, arm: Arm, reference: Arm) -> ParityResult | None:
        """The result of an arm where two runs of the baseline differ as much as the arm and the baseline."""
        theirs, again = self.evidence(reference.id), self.evidence(reference.id, REPEAT)
        if theirs is None or again is None:
            return None
        own = self.judged(theirs, again, arm, reference)
        if own.verdict is not ParityVerdict.DIFFERENT:
            return None
        seen = own.reason or own.worst
        reason = f"the baseline does not repeat itself: two runs of it with one seed differ, {seen}"
        return replace(own, verdict=ParityVerdict.UNCHECKED, reason=reason)

    def _as_timed(self, arm: Arm, reference: Arm, result: ParityResult) -> ParityResult:
        """The parity of an arm whose timing trials may have computed something else than its evidence."""
        if result.verdict is ParityVerdict.DIFFERENT:
            return result
        timed = self.timed(arm, reference)
        if timed.note and (note := f"{self._manifest.arm_names[arm.id]}: {timed.note}") not in self.notes:
            self.notes.append(note)
        if timed.departure is None:
            return result
        return replace(
            result,
            verdict=ParityVerdict.DIFFERENT,
            worst=timed.departure,
            deviations=(*result.deviations, timed.departure),
            reason=timed.departure.where,
        )

    def timed(self, arm: Arm, reference: Arm) -> TimedParity:
        """What the numbers of an arm's timing trials say against a baseline's."""
        parity, bounds = self._class(arm, reference)
        checks = self._declared.checks
        excused = any(map(is_own, checks)) and bool(failed_oracles(self.evidence(reference.id), checks))
        return self._timed.judge(arm.id, reference.id, Allowed(parity, bounds, checks), excused)

    def courses_wanted(self, pack: Pack, retry: Iterable[Outcome] = ()) -> list[Asked]:
        """List the course trials that a pack lacks, then trials that would decide where an arm departs."""
        if missing := self._timed.missing(pack, retry):
            return missing
        pairs = {(arm, self.reference(effect)) for effect in self._compared for arm in effect.weights}
        here = [pair for pair in sorted(pairs) if set(pair) <= set(pack.arms)]
        doubts = [self.timed(*map(self._manifest.arm, pair)).doubts for pair in here]
        return list(dict.fromkeys(asked for some in doubts for asked in some))

    def judged(self, theirs: Evidence, ours: Evidence, arm: Arm, base: Arm) -> ParityResult:
        """A run of an arm against another's, in the loosest class of the levels that set them apart."""
        parity, bounds = self._class(arm, base)
        return judge(theirs, ours, self._declared.checks, parity, bounds)

    def replicates_wanted(self, pack: Pack) -> list[tuple[str, int]]:
        """List (arm, offset of the seed) of evidence after the first that a pack should have, or has.

        Paired seeds of arms that draw at random, then references that are run again.
        """
        seeds = (
            (one, seed)
            for arm, reference in self._pairs_of(pack)
            for seed in range(1, self.seeds_wanted(arm, reference))
            for one in (reference, arm)
        )
        return list(dict.fromkeys([*seeds, *((one, REPEAT) for one in self.repeats_wanted(pack))]))

    def seeds_wanted(self, arm_id: str, reference_id: str) -> int:
        """How many paired seeds an arm and its baseline should have: one, unless a level draws at random.

        Then as many as planned, and three more where tests of those leave equivalence open; one still, where
        the two compute the same bits.
        """
        arm, reference = self._manifest.arm(arm_id), self._manifest.arm(reference_id)
        if arm_id == reference_id or self._class(arm, reference)[0] is not Parity.STOCHASTIC:
            return 1
        if self._judged(arm, reference).verdict is ParityVerdict.IDENTICAL:
            return 1  # nothing of it was drawn, or all of it alike
        planned = self._manifest.sweep.measure.seeds
        if len(self._pairs(arm_id, reference_id)) < planned:
            return planned
        self._results.pop((arm_id, reference_id), None)
        result = self.between(arm_id, reference_id)
        tested_in_vain = result.verdict is ParityVerdict.UNCHECKED and result.deviations
        return planned + MORE_SEEDS if tested_in_vain else planned

    def sharing(self, data: Mapping[str, str]) -> dict[str, str]:
        """Data by arm, without the arms that may have other data: their results are compared over seeds."""
        reference = self._manifest.arm(next(iter(self._manifest.sweep.references.values())))
        shared = dict(data)
        for arm in self._manifest.arms:
            own, base = data.get(arm.id), data.get(reference.id)
            if own != base and self._class(arm, reference)[0] is Parity.STOCHASTIC:
                shared.pop(arm.id, None)
                name = self._manifest.arm_names[arm.id]
                self.notes.append(f"{name}: {OTHER_DRAWS}")
        return shared

    def repeats_wanted(self, pack: Pack) -> list[str]:
        """List references that a second run would tell something of: the evidence of an arm is different."""
        return sorted(
            {
                reference
                for arm, reference in self._pairs_of(pack)
                if self._judged(*map(self._manifest.arm, (arm, reference))).verdict is ParityVerdict.DIFFERENT
                and self.evidence(reference, REPEAT) is None
            }
        )

    def _pairs_of(self, pack: Pack) -> dict[tuple[str, str], None]:
        """Arms of the effects that lie in a pack, each with the arm that its results are held against."""
        effects = [one for one in self._compared if one.weights.keys() <= set(pack.arms)]
        return dict.fromkeys((arm, self.reference(effect)) for effect in effects for arm in effect.weights)

    def levels(self, arm: Arm) -> dict[str, DeclaredLevel]:
        """The declared levels of an arm."""
        return self._declared.levels_of(arm)

    def evidence(self, arm_id: str, seed: int = 0) -> Evidence | None:
        """What an arm computed with the seed at this offset, or None."""
        key = (arm_id, seed)
        if key not in self._evidence:
            found = self._found(arm_id, seed)
            if found is None:
                return None  # it may still come
            self._evidence[key] = None
            if found.record.outcome is Outcome.OK:
                try:
                    self._evidence[key] = self._read(found.folder)
                except RecordError as error:
                    self.notes.append(f"skipped: {error}")
        return self._evidence[key]

    def _class(self, arm: Arm, reference: Arm) -> tuple[Parity, dict[str, float]]:
        """The loosest class of the levels that differ, and of the baseline's own levels that round, as bf16.

        However exact an arm is, it differs from such a baseline by rounding: sums in another order round
        differently.
        """
        apart = [
            level
            for name, level in self.levels(arm).items()
            if arm.levels[name] != reference.levels.get(name)
        ]
        rounding = [one for one in self.levels(reference).values() if one.parity is Parity.TOLERANCE]
        return loosest([*apart, *rounding] if apart else [], self._checks)

    def _judged(self, arm: Arm, reference: Arm) -> ParityResult:
        parity, bounds = self._class(arm, reference)
        units = [self._units(one.id) for one in (reference, arm)]
        theirs, ours = self.evidence(reference.id), self.evidence(arm.id)
        first = judge(
            comparable(theirs, ours),
            ours,
            self._checks if replayed(ours) else self._declared.checks,
            parity,
            bounds,
            units_expected=units[0],
            units_done=units[1],
        )
        pairs = self._pairs(arm.id, reference.id)
        if parity is not Parity.STOCHASTIC or first.verdict is ParityVerdict.DIFFERENT or len(pairs) < 2:
            return first
        theirs, ours = zip(*pairs, strict=True)
        return judge_seeds(theirs, ours, self._declared.checks, parity, bounds)

    def _pairs(self, arm_id: str, reference_id: str) -> list[tuple[Evidence, Evidence]]:
        """Evidence of reference and arm by seed, where both have it."""
        seeds = range(self._manifest.sweep.measure.seeds + MORE_SEEDS)
        both = [(self.evidence(reference_id, seed), self.evidence(arm_id, seed)) for seed in seeds]
        return [(theirs, ours) for theirs, ours in both if theirs is not None and ours is not None]

    def _found(self, arm_id: str, seed: int) -> Trial | None:
        return (
            self._trials.seeds.get((arm_id, seed))
            if seed
            else self._trials.other.get((arm_id, Kind.EVIDENCE))
        )

    def _units(self, arm_id: str) -> float | None:
        found = self._found(arm_id, 0)
        return found.record.units if found and found.record.outcome is Outcome.OK else None


def replayed(evidence: Evidence | None) -> bool:
    """Whether this evidence holds replayed iterations."""
    return evidence is not None and any(name.startswith(REPLAYED) for name in evidence.tensors)


def comparable(reference: Evidence | None, arm: Evidence | None) -> Evidence | None:
    """The baseline's evidence without the iterations that the arm has not replayed."""
    if reference is None or arm is None:
        return reference
    tensors = {k: v for k, v in reference.tensors.items() if k in arm.tensors or not k.startswith(REPLAYED)}
    return Evidence(tensors, reference.numbers, reference.parts)


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
    their mean. The bound is the margin, relative to the baseline's mean.
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
        if not is_own(check) and all(entry_of(run, check.name) is not None for run in runs)
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
    """Differences of one metric relative to the baseline's mean, tested against the margin."""
    before = [float(np.mean(entry_of(evidence, name))) for evidence in reference]  # type: ignore[arg-type]
    after = [float(np.mean(entry_of(evidence, name))) for evidence in arm]  # type: ignore[arg-type]
    scale = abs(float(np.mean(before))) or 1.0
    return tost([(a - b) / scale for a, b in zip(after, before, strict=True)], margin)


def _over_seeds(tests: Mapping[str, Equivalence]) -> ParityResult:
    """All metrics must be equivalent: requiring every test to reject needs no correction for their number."""
    every = tuple(_seed_deviation(name, test) for name, test in tests.items())
    worst = max(every, key=lambda deviation: deviation.ratio)
    for equivalent, verdict in _SEED_VERDICTS.items():
        for name, test in tests.items():
            if test.equivalent is equivalent:
                return ParityResult(verdict, Parity.STOCHASTIC, worst, every, _seed_reason(name, test))
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
