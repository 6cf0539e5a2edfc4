"""The answer about two versions: a line for a person, a JSON object for a program, and an exit status."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pipelines.analysis.exclusions import BASE, OTHER_DATA
from pipelines.analysis.judge import EffectResult
from pipelines.exits import DONE, SOME_FAILED, UNDECIDED
from pipelines.parity.comparison import ParityVerdict
from pipelines.statistics.verdicts import Verdict
from pipelines.units import bounds_text, percent

SCHEMA = "perfsweep.judge/1"
"""Name and version of the JSON object; fields may be added to a version, and never change their meaning."""


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
    ratio, low, high : time of head / time of base, with its 95 % interval
    """

    base: Side
    head: Side
    verdict: str
    results: str
    status: int
    margin: float
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    clock: str = ""
    rounds: int = 0
    seconds: float = 0.0
    budget_s: float | None = None
    reason: str = ""
    sweep: str = ""

    @property
    def line(self) -> str:
        """The answer in one line."""
        change = percent(self.ratio)
        interval = bounds_text(self.ratio, self.low, self.high)
        time = f", time {change} [{interval}]" if change and interval else ""
        how = f" ({self.clock}, {self.rounds} rounds, {self.seconds:.0f} s)" if self.rounds else ""
        why = f"; {self.reason}" if self.reason else ""
        return f"{self.verdict}: {self.head} against {self.base}{time}{how}; results {self.results}{why}"

    def as_json(self) -> dict[str, Any]:
        """The answer as docs/versions.md describes it."""
        sides = {name: {"name": side.name, "commit": side.commit} for name, side in self._sides.items()}
        return {
            "schema": SCHEMA,
            "compares": self.base.kind,
            **sides,
            "verdict": self.verdict,
            "results": self.results,
            "exit": self.status,
            "ratio": self.ratio,
            "low": self.low,
            "high": self.high,
            "level": 0.95,
            "margin": self.margin,
            "clock": self.clock,
            "rounds": self.rounds,
            "seconds": round(self.seconds, 1),
            "budget_s": self.budget_s,
            "reason": self.reason,
            "sweep": self.sweep,
        }

    @property
    def _sides(self) -> dict[str, Side]:
        return {"base": self.base, "head": self.head}


def judged(result: EffectResult) -> dict[str, Any]:
    """Verdict, results, status and times of an answer, from the effect of head against base."""
    results = result.parity.verdict if result.parity else ParityVerdict.UNCHECKED
    found = {
        "ratio": result.ratio,
        "low": result.low,
        "high": result.high,
        "clock": result.clock.value,
        "rounds": result.rounds,
        "results": results.value,
        "reason": result.held_back or result.note,
    }
    if result.outcome:
        return found | _without_time(result)
    if (verdict := result.verdict) is None or verdict not in WORDS:
        return found | {"verdict": "undecided", "status": UNDECIDED, "reason": _undecided(result)}
    return found | {"verdict": WORDS[verdict], "status": DONE if verdict in _FINE else SOME_FAILED}


def _without_time(result: EffectResult) -> dict[str, Any]:
    """Other data are other results; a head that does not run is worse than a base that does."""
    if result.outcome == OTHER_DATA:
        return {"verdict": WORDS[Verdict.DIFFERENT], "results": OTHER_DATA, "status": SOME_FAILED}
    if result.outcome.startswith(BASE):
        return {"verdict": "undecided", "status": UNDECIDED}
    return {"verdict": "failed", "status": SOME_FAILED}


def _undecided(result: EffectResult) -> str:
    if result.held_back:
        return result.held_back
    needed = result.rounds_needed
    more = f"about {needed} rounds would decide" if needed else "no number of rounds would decide"
    return f"{more}, if the estimate stayed"
