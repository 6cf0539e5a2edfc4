"""Progress of a sweep: the one rule for resume, status and collect.

The unit of progress is the round. It is finished when every arm that it was to measure has a record of one
attempt: pairs never mix attempts, so what was interrupted is measured again whole. A finished round that
something disturbed may be measured again, within `measure.repeats`; of several finished attempts the one in
which most arms ended well is used, of equal ones that with the fewest disturbed trials, then the latest. A
round is finished without an arm that keeps failing, which is retired for good, and without arms that have
left by `stop_rule`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

from perfsweep.pipelines.store.records import Kind, Outcome, Pack, TrialRecord

AnyKey = TypeVar("AnyKey")

GIVE_UP_AFTER = 2
"""An arm of which this many timing trials of a pack failed, whatever the round and attempt, is retired."""

BAD = frozenset({Outcome.FAILED, Outcome.OOM, Outcome.TIMEOUT})


@dataclass(frozen=True)
class StoredTrial:
    """A trial's record and the folder it lies in."""

    folder: Path
    record: TrialRecord


class Rule(Protocol):
    """Which arms each round of a pack measures, and how many there are: see `stop_rule`."""

    @property
    def reference(self) -> str: ...

    def arms(self, pack: Pack, progress: Progress, number: int) -> Collection[str] | None: ...

    def rounds(self, pack: Pack, progress: Progress) -> int: ...


@dataclass
class Progress:
    """Records of a sweep, by what they belong to.

    `damaged` files are named, never guessed; `left_out` counts records of another experiment by what sets
    them apart. `repeats` rounds of a pack may be measured again, and
    `rule` says which rounds a pack needs, and of which arms (None: all that are planned). `seeds` holds the
    evidence of further seeds, by arm and offset. `timed` lists the timing trials of an arm that ended well,
    `courses` its course trials by the offset of their seed; `trainings` holds those to the target, by arm
    and seed. `every` lists all trials, replaced ones included.

    What counts ran on one kind of `machine`; records of others, such as other GPUs, count among themselves
    alone: `elsewhere` holds them, a kind each.
    """

    timing: dict[tuple[str, int], dict[int, dict[str, StoredTrial]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(dict))
    )
    other: dict[tuple[str, Kind], StoredTrial] = field(default_factory=dict)
    seeds: dict[tuple[str, int], StoredTrial] = field(default_factory=dict)
    every: list[StoredTrial] = field(default_factory=list)
    timed: dict[str, list[TrialRecord]] = field(default_factory=lambda: defaultdict(list))
    courses: dict[tuple[str, int], list[TrialRecord]] = field(default_factory=lambda: defaultdict(list))
    trainings: dict[tuple[str, int], StoredTrial] = field(default_factory=dict)
    damaged: list[str] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    repeats: int = 0
    rule: Rule | None = None
    machine: Mapping[str, str] = field(default_factory=dict)
    elsewhere: list[Progress] = field(default_factory=list)
    _retired: dict[tuple[str, str], TrialRecord | None] = field(default_factory=dict)
    _timings: dict[tuple[str, str], dict[tuple[int, int], StoredTrial]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    _not_ok: dict[tuple[str, str], dict[tuple[int, int], StoredTrial]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    _attempts: dict[tuple[str, int], tuple[list[str], list[int]]] = field(default_factory=dict)
    _latest: dict[tuple[str, Kind], dict[str, Any]] = field(default_factory=lambda: defaultdict(dict))
    _facts: dict[str, Any] = field(default_factory=dict)
    _forgotten: set[tuple[str, int]] = field(default_factory=set)

    def add(self, trial: StoredTrial) -> None:
        """Note one more record."""
        self._retired.clear()
        self._share(trial.record)
        self.every.append(trial)
        record = trial.record
        if record.kind is Kind.TIMING and record.round is not None:
            self._attempts.pop((record.pack, record.round), None)
            self.timing[record.pack, record.round][record.attempt][record.arm] = trial
            self._timings[record.pack, record.arm][record.round, record.attempt] = trial
            if record.outcome is not Outcome.OK:
                self._not_ok[record.pack, record.arm][record.round, record.attempt] = trial
            if record.outcome is Outcome.OK:
                self.timed[record.arm].append(record)
        elif record.kind is Kind.COURSE:
            self.courses[record.arm, record.replicate].append(record)
        elif record.kind is Kind.QUALITY:
            _keep_latest(self.trainings, (record.arm, record.replicate), trial)
        elif record.replicate:
            self.seeds[record.arm, record.replicate] = trial
        else:
            _keep_latest(self.other, (record.arm, record.kind), trial)

    def _share(self, record: TrialRecord) -> None:
        """Keep one copy of what thousands of records say alike: those of an arm, and all of their machine."""
        values = vars(record)
        _keep_one_copy(values, self._latest[record.arm, record.kind])
        _keep_one_copy(values["environment"], self._facts)

    def retired(self, pack: str, arms: Sequence[str]) -> dict[str, TrialRecord]:
        """List the arms that are not started again in a pack, each with the record that decided it."""
        for arm in arms:
            if (pack, arm) not in self._retired:
                self._retired[pack, arm] = self._retirement(pack, arm)
        return {arm: last for arm in arms if (last := self._retired[pack, arm])}

    def lacks(
        self, pack: str, arm: str, kind: Kind, replicate: int = 0, retry: frozenset[Outcome] = frozenset()
    ) -> bool:
        """Whether a pack is to make a trial without times: not yet, or once more for its outcome."""
        done = self.seeds.get((arm, replicate)) if replicate else self.other.get((arm, kind))
        if done and done.record.outcome not in retry:
            return False
        return bool(retry) or not self.retired(pack, [arm])  # it has ended a whole job already

    def _retirement(self, pack: str, arm: str) -> TrialRecord | None:
        """Find the trial after which an arm is not started again; it only ever gets more of them."""
        not_ok = self._not_ok.get((pack, arm), {}).values()
        records = sorted((one.record for one in not_ok), key=_as_they_ended)
        kinds = (Kind.COUNTING, Kind.EVIDENCE)
        once = [found.record for kind in kinds if (found := self.other.get((arm, kind)))]
        bad = [record for record in records if record.outcome in BAD]
        unsupported = [
            record
            for record in (*records, *once)
            if record.outcome is Outcome.UNSUPPORTED and record.kind is not Kind.COUNTING
        ]
        final = [one for one in (*records, *once) if one.failure and one.failure.is_final]
        return next(iter([*unsupported, *final, *bad[GIVE_UP_AFTER - 1 :], *self._mistakes(pack)]), None)

    def _mistakes(self, pack: str) -> Iterator[TrialRecord]:
        """Trials of the baseline that show a mistake, which the other arms are configured to make too."""
        base = self.rule.reference if self.rule else ""
        kinds = (Kind.COUNTING, Kind.EVIDENCE)
        once = (found for kind in kinds if (found := self.other.get((base, kind))))
        for one in (*once, *self._not_ok.get((pack, base), {}).values()):
            if one.record.failure and one.record.failure.is_mistake:
                yield one.record

    def measured(self, pack: Pack, number: int) -> tuple[str, ...]:
        """List the arms that a round measures, in its order; which these are is known once its turn comes."""
        arms = self.rule.arms(pack, self, number) if self.rule else None
        order = pack.orders[number]
        return order if arms is None else tuple(arm for arm in order if arm in arms)

    def finished_attempt(self, pack: Pack, number: int) -> int | None:
        """Choose the attempt that counts for a round; None while none is finished."""
        arms = self.measured(pack, number)
        finished = self._finished(pack.id, number, arms)
        if len(finished) < 2:
            return finished[0] if finished else None
        return min(finished, key=lambda attempt: (*self._flaws(pack.id, number, attempt, arms), -attempt))

    def first_attempt(self, pack: Pack, number: int, arms: Collection[str]) -> int | None:
        """The first finished attempt at a round of these arms, of those in which most of them ended well."""
        order = [arm for arm in pack.orders[number] if arm in arms]
        finished = self._finished(pack.id, number, order)
        return min(
            finished,
            key=lambda attempt: (self._flaws(pack.id, number, attempt, order)[0], attempt),
            default=None,
        )

    def used(self, pack: Pack, number: int) -> list[StoredTrial]:
        """List the trials that count for a round."""
        attempt = self.finished_attempt(pack, number)
        return [] if attempt is None else list(self.timing[pack.id, number][attempt].values())

    def rounds_wanted(self, pack: Pack) -> int:
        """Count the rounds that a pack needs; the number grows while an adaptive sweep runs."""
        return self.rule.rounds(pack, self) if self.rule else len(pack.orders)

    def finished_rounds(self, pack: Pack) -> int:
        """Count the finished rounds of a pack among its planned ones."""
        wanted = range(self.rounds_wanted(pack))
        return sum(self.finished_attempt(pack, number) is not None for number in wanted)

    def unfinished_rounds(self, pack: Pack, retry: frozenset[Outcome] = frozenset()) -> list[int]:
        """List unfinished rounds and those to be tried again; if none, as many disturbed ones as may be."""
        unfinished = [
            number
            for number in range(self.rounds_wanted(pack))
            if retry or not self._settled(pack, number)
            if not self._satisfied(pack, number, retry)
        ]
        return unfinished or self.to_repeat(pack)

    def forget(self, pack: Pack, number: int) -> None:
        """Drop the records of a round once it is finished for good.

        A pack of thousands of trials knows of them no more than that. What is kept: attempts that may still
        be chosen between, and rounds that may be measured again.
        """
        attempts = self._finished(pack.id, number, self.measured(pack, number))
        if len(attempts) != 1 or (self.repeats and self._disturbed(pack.id, number, attempts[0])):
            return
        self._forgotten.add((pack.id, number))
        for attempt, trials in self.timing.pop((pack.id, number), {}).items():
            for arm in trials:
                self._timings[pack.id, arm].pop((number, attempt))
        self.every = [one for one in self.every if not self._is_forgotten(one.record)]
        for arm in pack.arms:
            self.timed[arm] = [one for one in self.timed[arm] if not self._is_forgotten(one)]

    def cadence_of(self, arm: str, reference: str) -> int | None:
        """The period that an arm's own evidence shows, else the baseline's; None where neither shows any."""
        shown = (self.other.get((one, Kind.EVIDENCE)) for one in (arm, reference))
        return next((one.record.cadence for one in shown if one and one.record.cadence), None)

    def _is_forgotten(self, record: TrialRecord) -> bool:
        return record.kind is Kind.TIMING and (record.pack, record.round) in self._forgotten

    def _settled(self, pack: Pack, number: int) -> bool:
        """Whether a round was found finished before, and no record of it has come since."""
        return bool(self._known(pack.id, number, self._needed(pack.id, self.measured(pack, number))))

    def _known(self, pack: str, number: int, needed: list[str]) -> list[int] | None:
        """The finished attempts found before; of a forgotten round, whatever arms were needed then."""
        arms, attempts = self._attempts.get((pack, number), ([], None))
        return attempts if arms == needed or (pack, number) in self._forgotten else None

    def _needed(self, pack: str, arms: Sequence[str]) -> list[str]:
        """List the arms of a round without which it is not finished."""
        retired = self.retired(pack, arms)
        return [arm for arm in arms if arm not in retired]

    def to_repeat(self, pack: Pack) -> list[int]:
        """List the disturbed rounds that may be measured again."""
        if not self.repeats:
            return []
        finished = {
            number: self._finished(pack.id, number, self.measured(pack, number))
            for number in range(self.rounds_wanted(pack))
        }
        left = self.repeats - sum(max(0, len(attempts) - 1) for attempts in finished.values())
        disturbed = [
            n
            for n, tries in finished.items()
            if all(self._disturbed(pack.id, n, attempt) for attempt in tries)
        ]
        return [number for number in disturbed if finished[number]][: max(0, left)]

    def seconds(self, pack: str, rounds: int) -> float:
        """Add up the seconds that a pack's first rounds took, attempts that do not count included."""
        return sum(
            trial.record.ended - trial.record.started
            for number in range(rounds)
            for arms in self.timing.get((pack, number), {}).values()
            for trial in arms.values()
        )

    def _satisfied(self, pack: Pack, number: int, retry: frozenset[Outcome]) -> bool:
        """Whether nothing of a round is to be measured: it is finished, or none of its arms is left."""
        arms = self.measured(pack, number)
        retired = self.retired(pack.id, arms)
        again = {arm for arm, last in retired.items() if last.outcome in retry}
        attempt = self.finished_attempt(pack, number)
        if attempt is None:
            return len(retired) == len(arms) and not again
        trials = self.timing[pack.id, number][attempt]
        return again <= trials.keys() and not any(one.record.outcome in retry for one in trials.values())

    def _finished(self, pack: str, number: int, arms: Sequence[str]) -> list[int]:
        """List attempts with a record of each of these arms."""
        needed = self._needed(pack, arms)
        if (known := self._known(pack, number, needed)) is not None:
            return known
        attempts = self.timing.get((pack, number), {})
        found = [attempt for attempt, trials in attempts.items() if all(arm in trials for arm in needed)]
        self._attempts[pack, number] = needed, found
        return found

    def _flaws(self, pack: str, number: int, attempt: int, arms: Sequence[str]) -> tuple[int, int]:
        """Count the arms that an attempt has no good trial of, and its trials that something disturbed.

        An arm that it lacks weighs as one that failed: where arms were retired, attempts that broke off are
        finished too, and the fewer trials they have, the fewer are disturbed.
        """
        trials = self.timing[pack, number][attempt]
        good = {arm for arm, one in trials.items() if one.record.outcome is Outcome.OK}
        return len({*arms} - good), self._disturbed(pack, number, attempt)

    def _disturbed(self, pack: str, number: int, attempt: int) -> int:
        trials = self.timing.get((pack, number), {}).get(attempt, {})
        return sum(bool(trial.record.disturbed) for trial in trials.values())

    def repeated(self, pack: Pack) -> list[int]:
        """List the rounds that were measured again with less disturbance."""
        rounds = []
        for number in range(len(pack.orders)):
            attempts = self._finished(pack.id, number, self.measured(pack, number))
            used = self.finished_attempt(pack, number)
            if used is not None and any(
                self._disturbed(pack.id, number, attempt) > self._disturbed(pack.id, number, used)
                for attempt in attempts
            ):
                rounds.append(number)
        return rounds

    def timings(self, pack: str, arm: str) -> list[StoredTrial]:
        """List the timing trials of an arm in a pack, of all rounds and attempts, as they ended."""
        trials = self._timings.get((pack, arm), {}).values()
        return sorted(trials, key=lambda trial: _as_they_ended(trial.record))


def _keep_latest(kept: dict[AnyKey, StoredTrial], key: AnyKey, trial: StoredTrial) -> None:
    """Folders are read in the order of their names, in which a10 comes before a2."""
    if key not in kept or trial.record.attempt >= kept[key].record.attempt:
        kept[key] = trial


def _as_they_ended(record: TrialRecord) -> tuple[int, float]:
    """Where a trial comes among those of its pack: a clock may be set back between two attempts."""
    return record.attempt, record.ended


def _keep_one_copy(values: dict[str, Any], latest: dict[str, Any]) -> None:
    """Put the latest value of a name in the place of an equal one: nothing changes but where it lies."""
    for name, value in values.items():
        if isinstance(value, dict | list | tuple | str):
            values[name] = latest[name] = latest[name] if latest.get(name) == value else value


DATA = "data"
"""The comparison key that belongs to an arm and not to a machine."""


def machine_of(keys: Mapping[str, str]) -> dict[str, str]:
    """The comparison keys that tell machines apart: device, versions, power limit."""
    return {name: value for name, value in keys.items() if name != DATA}


def agrees(record: TrialRecord, facts: Mapping[str, str]) -> bool:
    """Whether a record names no other value of these keys."""
    return all(record.keys.get(name, value) == value for name, value in facts.items())
