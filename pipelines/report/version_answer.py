"""The answer about two versions: a line to read, a JSON object for a program, and an exit status."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from perfsweep.pipelines.analysis.effect_result import EffectResult
from perfsweep.pipelines.analysis.exclusions import BASE, OTHER_DATA
from perfsweep.pipelines.exits import DONE, SOME_FAILED, UNDECIDED
from perfsweep.pipelines.parity.results import ParityResult, ParityVerdict
from perfsweep.pipelines.statistics.verdicts import Verdict
from perfsweep.pipelines.units import bounds_text, speed

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
        sides = (("base", self.base), ("head", self.head))
        return {
            "schema": SCHEMA,
            "workload": self.workload,
            "compares": self.base.kind,
            **{name: {"name": side.name, "commit": side.commit} for name, side in sides},
            "verdict": self.verdict,
            "results": self.results,
            "exit": self.status,
            "ratio": self.ratio,
            "low": self.low,
            "high": self.high,
            "level": 0.95,
            "margin": self.margin,
            "rounds": self.rounds,
            "seconds": round(self.seconds, 1),
            "budget_s": self.budget_s,
            "reason": self.reason,
            "deviation": self.deviation,
            "rounds_needed": self.rounds_needed,
            "seconds_needed": self.seconds_needed,
            "sweep": self.sweep,
        }


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
