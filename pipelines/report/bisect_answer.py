"""The answer of a bisection: a line and a log to read, a JSON object for a program, an exit status."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from perfsweep.pipelines.exits import DONE, SOME_FAILED, UNDECIDED
from perfsweep.pipelines.report.version_answer import Answer, Side
from perfsweep.pipelines.versions.bisection import Bisection, Mark
from perfsweep.pipelines.versions.repository import Commit

SCHEMA = "perfsweep.bisect/1"
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
            "schema": SCHEMA,
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
