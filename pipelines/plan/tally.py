"""How far a sweep is by its plan, trial by trial, and how long the rest takes."""

from __future__ import annotations

import math
import textwrap
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import fmean

from perfsweep.pipelines.store.needed_once import trained_arms
from perfsweep.pipelines.store.progress import BAD, GIVE_UP_AFTER
from perfsweep.pipelines.store.records import Event, Kind, Manifest, Outcome
from perfsweep.pipelines.store.stop_rule import LEAST_TO_STOP

LABEL_WIDTH = 60
"""Arms with many levels are cut at this width in progress lines; the report has them whole."""


@dataclass(frozen=True)
class News:
    """A sentence for the user; `expected` where it calls for nothing."""

    sentence: str
    expected: bool = False


Ahead = Counter[tuple[str, Kind]]
"""How many trials of each arm (id) and kind an unfinished sweep still needs."""

_MORE = {
    Kind.TIMING: "rounds that something disturbed, measured again",
    Kind.EVIDENCE: "further seeds",
    Kind.COURSE: "further checks of timed trials",
    Kind.QUALITY: "trainings to the target",
    Kind.RESULT: "results to keep",
}
"""What trials are that come on top of the plan."""


class Tally:
    """How far a sweep is, trial by trial.

    Attributes
    ----------
    done, total : trials; `total` follows what is repeated, added or will never come
    stage, label : round or kind of the newest trial, and its arm
    """

    def __init__(self, manifest: Manifest, ahead: Ahead) -> None:
        self.planned = self.total = ahead.total()
        self.done, self.stage, self.label = 0, "", ""
        wide = {Kind.TIMING: "rounds of arms whose intervals are too wide"}
        self._reasons = _MORE | (wide if manifest.sweep.measure.adaptive else {})
        self._left = ahead.copy()
        self._labels = {arm.id: arm.label for arm in manifest.arms}
        self._packs = Counter(arm for pack in manifest.packs for arm in pack.arms)
        self._more: Counter[str] = Counter()
        self._gone: Ahead = Counter()
        self._bad: Counter[str] = Counter()
        self._said: set[tuple[str, str]] = set()
        self._seconds: dict[Kind, list[float]] = defaultdict(list)
        self._span = math.inf, 0.0
        measure = manifest.sweep.measure
        self._adaptive = measure.adaptive
        self._budget_s = (measure.budget_s or math.inf) * len(manifest.packs)

    def note(self, event: Event) -> list[News]:
        """Count a finished trial; the first bad outcome of each arm, and why the total changes, are news."""
        self.done += 1
        self._seconds[event.kind].append(event.seconds)
        self._span = min(self._span[0], event.time - event.seconds), max(self._span[1], event.time)
        self.label = textwrap.shorten(
            self._labels.get(event.arm, event.arm).replace(",", ", "), LABEL_WIDTH, placeholder=" ..."
        )
        self.stage = f"round {event.round + 1}" if event.round is not None else event.kind.value
        return [*self._grow(event), *self._hear(event)]

    def _grow(self, event: Event) -> Iterator[News]:
        """Trials on top of the plan make it longer; the first of each sort is news."""
        key = (event.arm, event.kind)
        self._left[key] -= 1
        if self._left[key] >= 0:
            return
        self.total += 1
        if self._gone[key] > 0:  # it comes after all
            self._gone[key] -= 1
            return
        why = self._reasons.get(event.kind, f"further {event.kind} trials")
        self._more[why] += 1
        if self._more[why] == 1:
            yield News(f"more trials than planned: {why}", expected=True)

    def _hear(self, event: Event) -> Iterator[News]:
        """The first trial of an arm that ended badly in its way, and that no further one will come."""
        if event.outcome is Outcome.OK:
            return
        unsupported = event.outcome is Outcome.UNSUPPORTED
        if unsupported and event.kind is Kind.COUNTING and self._left[event.arm, Kind.EVIDENCE] > 0:
            return  # the evidence trial says whether the arm can run at all
        gone = self._drop(event.arm) if self._is_last(event) else 0
        fewer = f"; {gone} trials fewer" if gone else ""
        if (event.arm, event.outcome) not in self._said:
            self._said.add((event.arm, event.outcome))
            reason = event.reason.partition("\n")[0].removeprefix(f"{self.label}: ")
            yield News(f"{self.label}: {event.outcome.value}: {reason}{fewer}", expected=unsupported)
        elif gone:
            yield News(f"{self.label}: not started again{fewer}", expected=True)

    def _is_last(self, event: Event) -> bool:
        """Whether no further trial of an arm will come: it cannot run, or its only pack retires it."""
        if event.outcome is Outcome.UNSUPPORTED:
            return event.kind is not Kind.COUNTING
        if event.final:
            return self._packs[event.arm] == 1
        self._bad[event.arm] += event.kind is Kind.TIMING and event.outcome in BAD
        return self._bad[event.arm] == GIVE_UP_AFTER and self._packs[event.arm] == 1

    def _drop(self, arm: str) -> int:
        """Take what will never come of an arm out of the total; how many trials that is."""
        gone: Ahead = Counter({key: self._left[key] for key in self._left if key[0] == arm})
        self._gone += gone  # of a Counter that keeps what is above zero
        self._left -= gone
        self.total -= (+gone).total()
        return (+gone).total()

    def left_s(self, rounds_s: float | None = None) -> float:
        """Seconds until the end if trials take as long as those of their kind did; infinite if none did yet.

        `rounds_s` is what the rounds to come will take, where that is foreseen. An adaptive sweep may take as
        long for them as its budget says.
        """
        left: Counter[Kind] = Counter()
        for (_, kind), number in self._left.items():
            left[kind] += max(0, number)
        if rounds_s is None and self._adaptive:
            rounds_s = max(0.0, self._budget_s - sum(self._seconds[Kind.TIMING]))
        seconds = 0.0
        for kind, number in left.items():
            if kind is Kind.TIMING and rounds_s is not None:
                seconds += rounds_s
            elif number:
                like = self._seconds[kind] or self._seconds[Kind.EVIDENCE if kind is Kind.COURSE else kind]
                seconds += number * fmean(like) if like else math.inf
        at_once = sum(map(sum, self._seconds.values())) / max(1e-9, self._span[1] - self._span[0])
        return seconds / max(1.0, at_once)

    @property
    def changes(self) -> str:
        """Why the total is not what was planned; nothing where it is."""
        gone = self._gone.total()
        fewer = [f"{gone} fewer: arms that ended early"] if gone else []
        more = [f"{number} more: {why}" for why, number in self._more.items()]
        return f"{self.planned} planned, {', '.join([*fewer, *more])}" if fewer or more else ""

    @property
    def count(self) -> str:
        """How many trials are done, of how many, and why these are not as many as planned."""
        return f"{self.done} of {self.total} trials" + (f" ({self.changes})" if self.changes else "")

    def __str__(self) -> str:
        return f"{self.count}, {self.stage}: {self.label}" if self.stage else self.count


def trials_ahead(manifest: Manifest, todo: Mapping[str, int]) -> Ahead:
    """Count the trials that a sweep with these unfinished rounds by pack needs, if every arm can run."""
    ahead: Ahead = Counter()
    measure = manifest.sweep.measure
    courses = [Kind.COURSE] * measure.timed_parity
    trained, seeds = trained_arms(manifest), measure.target_seeds
    for pack in manifest.packs:
        rounds = todo.get(pack.id, 0)
        # A pack runs what is needed once before its first round.
        at_first = min(len(pack.orders), LEAST_TO_STOP) if measure.adaptive else len(pack.orders)
        once = [Kind.COUNTING, Kind.EVIDENCE] if rounds >= at_first else []
        for arm in pack.arms if rounds else ():
            ahead[arm, Kind.TIMING] += rounds
            ahead[arm, Kind.QUALITY] = seeds if arm in trained else 0
            ahead |= Counter({(arm, kind): 1 for kind in (*once, *courses)})
    return ahead
