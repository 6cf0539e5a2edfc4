"""The answer about two versions: a line to read, a JSON object for a program, and an exit status."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from perfsweep.pipelines.analysis.effect_result import EffectResult
from perfsweep.pipelines.analysis.exclusions import BASE, OTHER_DATA
from perfsweep.pipelines.exits import DONE, SOME_FAILED, UNDECIDED
from perfsweep.pipelines.parity.results import ParityResult, ParityVerdict
from perfsweep.pipelines.statistics.estimates import LEVEL
from perfsweep.pipelines.statistics.verdicts import Verdict
from perfsweep.pipelines.units import bounds_text, speed
from perfsweep.pipelines.versions.bisection import Bisection, Mark
from perfsweep.pipelines.versions.repository import Commit

SCHEMA = "perfsweep.judge/2"
"""Name and version of the JSON object; fields may be added to a version, and never change their meaning."""

FIELDS = frozenset(
    (
        *("base", "head", "verdict", "results", "exit", "ratio", "low", "high", "margin"),
        *("rounds", "seconds", "reason", "sweep"),
    )
)
"""Fields that every object of the schema has."""

WORDS = {
    Verdict.FASTER: "faster",
    Verdict.SLOWER: "slower",
    Verdict.NO_DIFFERENCE: "no difference",
    Verdict.DIFFERENT: "different results",
    Verdict.FEWER_UNITS: "fewer units",
}
"""Verdicts that are answers; every other is *undecided*."""

_FINE = (Verdict.FASTER, Verdict.NO_DIFFERENCE)


@dataclass(frozen=True)
class Side:
    """A version: as it was named, and the commit that this was; None for the checkout and environments."""

    name: str
    commit: str | None
    kind: str = "commit"

    def __str__(self) -> str:
        return (
            f"{self.name} ({self.commit[:10]})"
            if self.commit and self.commit[:7] != self.name[:7]
            else self.name
        )


@dataclass(frozen=True)
class Answer:
    """What was found of `head` against `base`.

    Attributes
    ----------
    verdict : one of `WORDS`, *undecided*, or *failed* where the head alone does not run
    results : verdict of parity; *same code* where nothing had to be measured
    workload : what is measured, as folders call it
    ratio, low, high : time of head / time of base, with its 95 % interval
    deviation : of different results the check that is furthest off
    failed : which side does not run, *base* or *head*; empty where both do
    rounds_needed, seconds_needed : rounds and seconds of trials, existing ones included, that would decide an
        undecided answer if the estimate stayed
    """

    base: Side
    head: Side
    verdict: str
    results: str
    status: int
    margin: float
    workload: str = ""
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    rounds: int = 0
    seconds: float = 0.0
    budget_s: float | None = None
    reason: str = ""
    sweep: str = ""
    deviation: str = ""
    failed: str = ""
    rounds_needed: int | None = None
    seconds_needed: float | None = None

    @property
    def time(self) -> str:
        """How much faster or slower, with its interval; empty without one."""
        change, interval = speed(self.ratio), bounds_text(self.ratio, self.low, self.high)
        return f"{change} [{interval}]" if change and interval else ""

    @property
    def line(self) -> str:
        """The answer in one line."""
        time = f", {self.time}" if self.time else ""
        how = f" ({self.rounds} rounds, {self.seconds:.0f} s)" if self.rounds else ""
        why = f"; {self.reason}" if self.reason else ""
        return f"{self.verdict}: {self.head} against {self.base}{time}{how}; results {self.results}{why}"

    def as_json(self) -> dict[str, Any]:
        """The answer as docs/json.md describes it."""
        own = {name: value for name, value in vars(self).items() if name not in ("status", "failed")}
        sides = {
            name: {"name": side.name, "commit": side.commit}
            for name, side in (("base", self.base), ("head", self.head))
        }
        about = {"schema": SCHEMA, "compares": self.base.kind, "exit": self.status, "level": LEVEL}
        return {**about, **own, **sides, "seconds": round(self.seconds, 1)}


def judged(result: EffectResult, seconds: float = 0.0, *, base_runs: bool = True) -> dict[str, Any]:
    """Verdict, results, status and times of an answer, from the effect of head against base.

    Parameters
    ----------
    seconds : that all timed trials of both took
    base_runs : whether a timed trial of the base ended well
    """
    results = result.parity.verdict if result.parity else ParityVerdict.UNCHECKED
    found = {
        "ratio": result.ratio,
        "low": result.low,
        "high": result.high,
        "rounds": result.rounds,
        "results": results.value,
        "reason": result.held_back or result.note,
        "deviation": _deviation(result.parity),
    }
    if result.outcome:
        return found | _without_time(result, base_runs)
    if (verdict := result.verdict) is None or verdict not in WORDS:
        return found | {"verdict": "undecided", "status": UNDECIDED, **_needed(result, seconds)}
    return found | {"verdict": WORDS[verdict], "status": DONE if verdict in _FINE else SOME_FAILED}


def _without_time(result: EffectResult, base_runs: bool) -> dict[str, Any]:
    """Other data are other results; a head that does not run is worse only than a base that does."""
    if result.outcome == OTHER_DATA:
        return {"verdict": WORDS[Verdict.DIFFERENT], "results": OTHER_DATA, "status": SOME_FAILED}
    if result.outcome.startswith(BASE):
        return {"verdict": "undecided", "status": UNDECIDED, "failed": "base"}
    if not base_runs:
        reason = f"neither of the two runs: {result.note}"
        return {"verdict": "undecided", "status": UNDECIDED, "failed": "base", "reason": reason}
    return {"verdict": "failed", "status": SOME_FAILED, "failed": "head"}


def _deviation(parity: ParityResult | None) -> str:
    """The check that is furthest off, of results that are different."""
    if parity is None or parity.verdict is not ParityVerdict.DIFFERENT or parity.worst is None:
        return ""
    return f"{parity.worst.check}: {parity.worst.value:.2g}, allowed {parity.worst.bound:.2g}"


def _needed(result: EffectResult, seconds: float) -> dict[str, Any]:
    """What would decide an undecided effect."""
    if result.held_back:
        return {"reason": result.held_back}
    rounds = result.rounds_needed
    if not rounds:
        return {"reason": "no number of rounds would decide, if the estimate stayed"}
    each_s = seconds / result.rounds if result.rounds else 0.0
    about = f" ({duration_of(rounds * each_s)} of trials)" if each_s else ""
    return {
        "reason": f"about {rounds} rounds{about} would decide, if the estimate stayed",
        "rounds_needed": rounds,
        "seconds_needed": round(rounds * each_s, 1) or None,
    }


def duration_of(seconds: float) -> str:
    """A time to wait: in seconds, minutes or hours."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


BISECT_SCHEMA = "perfsweep.bisect/1"
"""Name and version of the JSON object; fields may be added to a version, and never change their meaning."""

SHORT = 10
"""Digits of a hash that people are shown."""


class Find(StrEnum):
    """The property whose first commit is looked for."""

    SLOWER = "slower"
    FASTER = "faster"
    DIFFERENT = "different"

    @property
    def noun(self) -> str:
        """What a commit with it is called."""
        return "commit that changes results" if self is Find.DIFFERENT else f"{self.value} commit"


_TIMES = ("slower", "faster", "no difference")
_EQUAL = ("identical", "within tolerance", "equivalent over seeds", "same code")


def mark_of(answer: Answer, find: Find) -> Mark:
    """Tell whether a commit has the property, from how it was judged against the good one.

    The time of a commit that changes results, or does less work, is not used: it is passed over, unless this
    is what is looked for.
    """
    if answer.verdict == "failed":
        return Mark.SKIPPED
    if find is Find.DIFFERENT:
        changed = answer.verdict == "different results"
        return Mark.WITH if changed else Mark.WITHOUT if answer.results in _EQUAL else Mark.SKIPPED
    if answer.verdict == "undecided":
        return Mark.UNDECIDED
    if answer.verdict not in _TIMES:
        return Mark.SKIPPED
    return Mark.WITH if answer.verdict == find.value else Mark.WITHOUT


@dataclass(frozen=True)
class Step:
    """A commit that was looked at: its place among the candidates, what came out, and what that means."""

    place: int
    commit: Commit
    mark: Mark
    answer: Answer

    @property
    def what(self) -> str:
        """What came out, in words."""
        answer = self.answer
        if self.mark is Mark.SKIPPED:
            return f"skipped: {_why(answer)}"
        time = f" {answer.time}, {answer.rounds} rounds" if answer.time else ""
        if self.mark is Mark.UNDECIDED:
            return f"undecided{time}, {answer.seconds:.0f} s: {answer.reason}"
        deviation = f" ({answer.deviation})" if answer.deviation else ""
        said = "" if answer.verdict in time else answer.verdict  # "1.10x slower" says it
        found = f"{said}{time}".strip() if time else f"results {answer.results}{deviation}"
        return f"{found}, {answer.seconds:.0f} s"

    def as_json(self) -> dict[str, Any]:
        """The step as docs/json.md describes it."""
        about = {"commit": self.commit.hash, "subject": self.commit.subject, "mark": self.mark.value}
        return {**about, "judge": self.answer.as_json()}


def _why(answer: Answer) -> str:
    """Why nothing can be said of a commit."""
    if answer.verdict in ("failed", "undecided"):
        return answer.reason or answer.results
    detail = answer.deviation or answer.reason
    return f"{answer.verdict} ({detail})" if detail else answer.verdict


@dataclass(frozen=True)
class BisectAnswer:
    """What was found between two commits.

    Attributes
    ----------
    commits : how many there are after `good` up to `bad`, along first parents
    candidates : those of them with other code than the one before, oldest first; the last has the code of
        `bad`
    steps : in their order; the first is about the last candidate
    """

    workload: str
    good: Side
    bad: Side
    find: Find
    margin: float
    commits: int
    candidates: tuple[Commit, ...]
    steps: tuple[Step, ...]
    seconds: float = 0.0

    @property
    def state(self) -> Bisection:
        """What is known of the candidates before the last."""
        last = len(self.candidates) - 1
        return Bisection(last + 1, {one.place: one.mark for one in self.steps if one.place != last})

    @property
    def verdict(self) -> str:
        """*found*, *range*, *nothing to find* or *undecided*."""
        if not self.candidates or self.steps[0].mark in (Mark.WITHOUT, Mark.SKIPPED):
            return "nothing to find"
        if self.steps[0].mark is Mark.UNDECIDED:
            return "undecided"
        return "found" if len(self.state.suspects) == 1 else "range"

    @property
    def status(self) -> int:
        """Exit status."""
        return {"found": DONE, "nothing to find": SOME_FAILED}.get(self.verdict, UNDECIDED)

    @property
    def suspects(self) -> tuple[Commit, ...]:
        """The commits one of which is the first with the property; none where nothing is to be found."""
        known = self.verdict in ("found", "range")
        return tuple(self.candidates[place] for place in self.state.suspects) if known else ()

    @property
    def line(self) -> str:
        """The answer in one line."""
        noun, took = self.find.noun, f"{len(self.steps)} steps, {self.seconds:.0f} s"
        if not self.candidates:
            return f"nothing to find: {self.good} and {self.bad} have the same code"
        first = self.steps[0]
        if self.verdict == "undecided":
            return f"undecided whether {self.bad} is {self.find.value}: {first.answer.reason}"
        if self.verdict == "nothing to find":
            return f"nothing to find: {first.answer.line}{self._advice}"
        if self.verdict == "range":
            suspects = ", ".join(map(_short, self.suspects))
            return f"the first {noun} is one of {len(self.suspects)}: {suspects} ({took})"
        (found,) = self.suspects
        return f'{_short(found)} is the first {noun}: "{found.subject}"{self._measured(found)} ({took})'

    def _measured(self, found: Commit) -> str:
        """How a commit was judged, where that says more than that it was found."""
        step = next((one for one in self.steps if one.commit == found), None)
        detail = step and (step.answer.deviation if self.find is Find.DIFFERENT else step.answer.time)
        return f", {detail} against {self.good}" if detail else ""

    @property
    def _advice(self) -> str:
        """What to do where times cannot be compared because results differ."""
        if self.find is Find.DIFFERENT or self.steps[0].answer.verdict != "different results":
            return ""
        return (
            "; a time counts only with the same results: find what changes them by --find different, then"
            " bisect what lies before or after it"
        )

    @property
    def log(self) -> Iterator[str]:
        """The steps, and what a reader of the answer must know, one line each."""
        for number, step in enumerate(self.steps, 1):
            yield f'{number}. {_short(step.commit)} {step.what}  "{step.commit.subject}"'
        if left := self.commits - len(self.candidates):
            yield f"{left} of {self.commits} commits have the code of the one before"
        if self.verdict == "range":
            known = {step.place: step for step in self.steps}
            for place in self.state.suspects[:-1]:
                yield f"not told apart: {_short(self.candidates[place])}: {known[place].what}"
        for merge in self.suspects:
            if merge.is_merge:
                yield (
                    f"{_short(merge)} is a merge, and first parents alone are followed: the branch that it"
                    f" brought in ends at {merge.parents[1][:SHORT]}; bisect that by itself"
                )

    def as_json(self) -> dict[str, Any]:
        """The answer as docs/json.md describes it."""
        first = self.suspects[0] if self.verdict == "found" else None
        return {
            "schema": BISECT_SCHEMA,
            "workload": self.workload,
            "good": {"name": self.good.name, "commit": self.good.commit},
            "bad": {"name": self.bad.name, "commit": self.bad.commit},
            "find": self.find.value,
            "verdict": self.verdict,
            "exit": self.status,
            "first": _as_json(first) if first else None,
            "suspects": [_as_json(one) for one in self.suspects],
            "commits": self.commits,
            "candidates": len(self.candidates),
            "margin": self.margin,
            "seconds": round(self.seconds, 1),
            "steps": [step.as_json() for step in self.steps],
        }


def _short(commit: Commit) -> str:
    return commit.hash[:SHORT]


def _as_json(commit: Commit) -> dict[str, Any]:
    return {"commit": commit.hash, "subject": commit.subject, "parents": list(commit.parents)}
