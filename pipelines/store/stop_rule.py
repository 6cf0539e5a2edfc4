"""Which arms each round of a pack measures, and when it ends: by precision, or by budget.

A function of the records alone, so that a sweep that was interrupted goes on as it would have gone on.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from perfsweep.pipelines.statistics.estimates import Apart, Method, precise_enough, reach
from perfsweep.pipelines.statistics.log_ratios import Cell, Rounds
from perfsweep.pipelines.store.progress import Progress
from perfsweep.pipelines.store.records import PLACEBO, Effect, Manifest, Outcome, Pack, TrialRecord

LEAST_TO_STOP = 6
"""Rounds from which arms may leave a pack: two that agree by luck would cover .89, not .95."""

_FAILED = 2  # rounds without a good trial of an arm, after which its effects are waited for no longer
_SHARE = 40  # of the rounds that are there pass between two looks, so that thousands of them cost no hours


@dataclass
class _Course:
    """What was decided in a pack: the effects `open` before each round, by the trials of those before.

    `read` says up to which record; `data` are the good trials of each round, and `attempts` theirs.
    """

    open: list[tuple[Effect, ...]]
    data: list[list[TrialRecord]] = field(default_factory=list)
    attempts: list[tuple[int | None, int]] = field(default_factory=list)
    read: tuple[int, int] = (0, -1)


class StopRule:
    """Lets each arm leave by itself once all effects that it takes part in are closed; references stay.

    An effect is looked at after each round from `LEAST_TO_STOP` rounds on, and is closed for good

    - when the 95 % interval that it will be judged by is as narrow as `measure.precision`, from as many
      replications: servers of two rounds would cover .90 otherwise. Significance has no part in it: stopping
      on p < .05 would find effects that are not there;
    - when it is clearly `Apart`, by a confidence sequence that allows for all these looks, which is then also
      the interval it is judged by. Student's interval, read where the estimate happened to lie far out, would
      cover less than it says. It lies beyond what placebos show too, or it could not be called; and placebos
      stay, as what one shows after few rounds would be a bar for all others;
    - in both cases once it was measured on two servers, where a sweep has as many: one is one draw;
    - when one of its arms has failed and is not started any more.

    An effect of many arms, such as a contrast of a factorial design, keeps all of them until it is closed.
    Looks read the first good attempt of a round, so that one that is repeated changes no decision.
    """

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest
        self._measure = manifest.sweep.measure
        self._apart = apart(manifest)
        self._courses: dict[str, _Course] = {}
        self._first = min(self._measure.rounds, LEAST_TO_STOP)

    @property
    def reference(self) -> str:
        """The arm that the others of the same code are measured against, unless they name another."""
        sweep = self._manifest.sweep
        return "" if sweep.versions else next(iter(sweep.references.values()), "")

    def arms(self, pack: Pack, progress: Progress, number: int) -> Collection[str] | None:
        """List the arms that a round measures; None: all of the pack."""
        if self._apart is None or number < self._first:
            return None
        decided = self._course(pack, progress).open
        last = len(decided) - 1 - (not decided[-1])  # what lies beyond the end was measured before the end
        return self._needed(pack, decided[min(number, last)])

    def rounds(self, pack: Pack, progress: Progress) -> int:
        """Count the rounds that the pack needs; while it goes on, one more than there are."""
        planned = len(pack.orders)
        if not self._measure.adaptive:
            return planned
        numbers = range(planned)
        there = next((n for n in numbers if progress.finished_attempt(pack, n) is None), planned)
        wanted = [planned, max(self._first, there + 1)]
        if self._apart and not (decided := self._course(pack, progress).open)[-1]:
            wanted.append(max(self._first, len(decided) - 1))
        budget_s = self._measure.budget_s
        if budget_s is not None and progress.seconds(pack.id, there) >= budget_s:
            looks = range(self._first, planned)
            wanted += [n for n in looks if progress.seconds(pack.id, n) >= budget_s][:1]
        return min(wanted)

    def _course(self, pack: Pack, progress: Progress) -> _Course:
        """Decide what the records allow; what was decided from the same trials before is kept."""
        course = self._courses.setdefault(pack.id, _Course([self._effects(pack)]))
        if course.read == (id(progress), len(progress.every)):
            return course
        end = max((number for name, number in progress.timing if name == pack.id), default=-1)
        for number in range(end + 1):
            if number == len(course.open) - 1 and not course.open[number]:
                break
            self._advance(course, pack, progress, number)
        course.read = (id(progress), len(progress.every))
        return course

    def _advance(self, course: _Course, pack: Pack, progress: Progress, number: int) -> None:
        """Take a round in, and decide on the next, unless that was done with the same trials."""
        arms = pack.arms if number < self._first else self._needed(pack, course.open[number])
        attempt = progress.first_attempt(pack, number, arms)
        attempts = progress.timing.get((pack.id, number), {})
        trials = [] if attempt is None else [one.record for one in attempts[attempt].values()]
        if course.attempts[number : number + 1] == [(attempt, len(trials))]:
            return
        del course.open[number + 1 :], course.data[number:], course.attempts[number:]
        course.attempts.append((attempt, len(trials)))
        course.data.append([one for one in trials if one.outcome is Outcome.OK and one.units > 0])
        course.open.append(self._look(pack, course, number + 1))

    def _look(self, pack: Pack, course: _Course, number: int) -> tuple[Effect, ...]:
        """The effects that are still open before a round, of the effects that were open before."""
        still = course.open[-1]
        recent = [data for data in course.data if data][-_FAILED:]
        step = max(1, number // _SHARE)
        if number < self._first or len(recent) < _FAILED or number % step:
            return still
        cells = (
            Cell(pack.id, one.round or 0, one.draw, one.arm, one.ns_per_unit, one.plain_ns_per_unit)
            for data in course.data
            for one in data
        )
        table = Rounds(cells, "ns_per_unit", self._apart)
        runs = {one.arm for data in recent for one in data}
        controls = [effect for effect in self._effects(pack) if effect.design == PLACEBO]
        bar = reach(table.estimate(effect, math.inf) for effect in controls)
        there = (effect for effect in still if effect.weights.keys() <= runs)
        return tuple(effect for effect in there if not self._closed(table, effect, bar))

    def _closed(self, table: Rounds, effect: Effect, bar: float) -> bool:
        draws = {pair.server for pair in table.pairs(effect)}
        if len(draws - {None}) == 1 and self._measure.servers > 1:
            return False
        estimate = table.estimate(effect, math.inf if effect.design == PLACEBO else bar)
        target = math.log1p(self._measure.precision or 0.0)
        enough = estimate.n >= LEAST_TO_STOP and precise_enough(estimate, target)
        return enough or estimate.method is Method.SEQUENCE

    def _effects(self, pack: Pack) -> tuple[Effect, ...]:
        arms = set(pack.arms)
        return tuple(effect for effect in self._manifest.effects if effect.weights.keys() <= arms)

    def _needed(self, pack: Pack, effects: Sequence[Effect]) -> set[str]:
        """The arms of these effects, and the reference arms, which are in every round."""
        shared = set(self._manifest.sweep.references.values()) & set(pack.orders[0])
        return shared.union(*(effect.weights for effect in effects))


def apart(manifest: Manifest) -> Apart | None:
    """When arms leave a sweep early; None where none does, since no precision is asked for."""
    measure = manifest.sweep.measure
    if measure.precision is None or not measure.adaptive:
        return None
    comparisons = sum(effect.design != PLACEBO for effect in manifest.effects)
    return Apart(math.log1p(measure.margin), max(1, comparisons))
