"""`perfsweep bisect`: the first commit of a line that is slower, faster, or changes results.

Nothing is kept between two steps but the sweeps' own folders: the same command reads what they hold, measures
what is missing, and so goes on where it was interrupted.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Sequence

import click

from perfsweep.pipelines.commands.judge import PRECISE, Steps, TwoVersions
from perfsweep.pipelines.exits import SOME_FAILED
from perfsweep.pipelines.plan.provided import CannotRun
from perfsweep.pipelines.report.version_answer import SHORT, Answer, BisectAnswer, Find, Side, Step, mark_of
from perfsweep.pipelines.terminal import error_console
from perfsweep.pipelines.versions import tree
from perfsweep.pipelines.versions.bisection import Mark
from perfsweep.pipelines.versions.repository import WORKTREE, Commit
from perfsweep.workloads.errors import ConfigError, harmless

LOOKS = (1, 2, 4)
"""An undecided step goes on with so many times the budget, and so much smaller a half-width. How many looks
there are, and how far each goes, is settled before any; a wrong call takes an estimate that lies the whole
margin off, however often one looks."""

RESULTS_ONLY = (
    *("measure.look=true", "measure.rounds=1", "measure.servers=1"),
    *("measure.precision=null", "measure.budget_s=null"),
)
"""What shows results needs no rounds to compare times."""


def bisect(words: Sequence[str], find: str, as_json: bool) -> int:
    """Find the first commit after GOOD, up to BAD, with a property; the status says how that ended.

    Raises
    ------
    ConfigError
        A commit is unknown, GOOD is no ancestor of BAD, or one of the two cannot run the workload.
    """
    started = time.monotonic()
    names = tuple(word for word in words if "=" not in word)
    if len(names) != 2 or tuple(words[:2]) != names:
        raise ConfigError(
            "bisect takes two commits, GOOD and BAD, and then the options of a sweep, such as workload="
        )
    if WORKTREE in names:
        raise ConfigError(
            "bisect walks from commit to commit; commit the worktree, or judge it: perfsweep judge"
        )
    if any(word.startswith("name=") for word in words):
        raise ConfigError("bisect measures each step into a folder of its own; leave name= out, or set runs=")
    good, bad = names
    answer = Walk(TwoVersions.of("bisect", words[2:]), good, bad, Find(find)).answer()
    answer = dataclasses.replace(answer, seconds=time.monotonic() - started)
    click.echo(
        json.dumps(answer.as_json(), indent=2) if as_json else harmless("\n".join([answer.line, *answer.log]))
    )
    return answer.status


class Walk:
    """One bisection, step by step."""

    def __init__(self, versions: TwoVersions, good: str, bad: str, find: Find) -> None:
        self._versions, self._find = versions, find
        repository = versions.commits
        line = repository.first_parents(good, bad)
        self._good, self._bad = versions.side(good), versions.side(bad)
        codes = [
            tree.blobs(repository, name) for name in (str(self._good.commit), *(one.hash for one in line))
        ]
        others = (one for one, before, code in zip(line, codes, codes[1:], strict=False) if before != code)
        self._candidates = tuple(others)
        self._commits = len(line)
        self._console = error_console()
        self._said = Steps(self._console)

    def answer(self) -> BisectAnswer:
        """Look at the last commit first, and then halve what lies before it."""
        answer = self._with(())
        if not self._candidates:
            return answer
        merges = sum(one.is_merge for one in self._candidates)
        followed = f"; of {merges} merges first parents are followed" if merges else ""
        self._say(
            f"{self._commits} commits after {self._good} up to {self._bad}, {len(self._candidates)} of them"
            f" with other code than the one before{followed}"
        )
        answer = self._with([self._last()])
        while answer.verdict in ("found", "range") and (place := answer.state.next) is not None:
            left, state = answer.state.steps_left, answer.state
            ahead = f"{len(state.suspects)} commits left, {left} step{'s' if left > 1 else ''} to go"
            answer = self._with([*answer.steps, self._step(place, f"step {len(answer.steps) + 1}: {ahead}")])
        return answer

    def _with(self, steps: Sequence[Step]) -> BisectAnswer:
        return BisectAnswer(
            workload=self._versions.title,
            good=self._good,
            bad=self._bad,
            find=self._find,
            margin=self._versions.margin,
            commits=self._commits,
            candidates=self._candidates,
            steps=tuple(steps),
        )

    def _last(self) -> Step:
        """Look at what is said to have the property.

        Raises
        ------
        ConfigError
            It does not run, or the good commit does not.
        """
        step = self._step(len(self._candidates) - 1, f"step 1: is {self._bad} {self._find.value}?")
        if end := {"head": self._bad, "base": self._good}.get(step.answer.failed):
            raise ConfigError(f"{end} cannot be measured ({step.answer.reason}); name a commit that runs")
        return step

    def _step(self, place: int, ahead: str) -> Step:
        """Judge a candidate against the good commit, in as many looks as it takes and is allowed."""
        commit = self._candidates[place]
        self._say(f'{ahead}; now {commit.hash[:SHORT]} "{commit.subject}"')
        head = Side(commit.hash[:12], commit.hash)
        try:
            step = self._looks(place, commit, head)
        except CannotRun as error:
            step = Step(place, commit, Mark.SKIPPED, self._unmeasured(head, str(error)))
        self._say(f"   {step.what}")
        return step

    def _looks(self, place: int, commit: Commit, head: Side) -> Step:
        def step_of(more: tuple[str, ...], purpose: str) -> Step:
            answer = self._versions.compare(self._good, head, self._said, more, purpose)
            step = Step(place, commit, mark_of(answer, self._find), answer)
            if step.mark is Mark.UNDECIDED:
                self._say(f"   undecided after {answer.rounds} rounds: {answer.reason}")
            return step

        first, *longer = self._options()
        step = step_of(*first)
        for options in longer:
            if step.mark is Mark.UNDECIDED:
                step = step_of(*options)
        return step

    def _unmeasured(self, head: Side, problem: str) -> Answer:
        """What is said of a commit that cannot even be planned."""
        reason = " ".join(problem.removeprefix("axes.commit: ").split())
        about = {"workload": self._versions.title, "margin": self._versions.margin, "reason": reason}
        return Answer(self._good, head, "failed", "unchecked", SOME_FAILED, failed="head", **about)

    def _options(self) -> list[tuple[tuple[str, ...], str]]:
        """Options of each look, and what its folder is called after."""
        if self._find is Find.DIFFERENT:
            return [(RESULTS_ONLY, "results")]
        half_width, budget_s = self._versions.margin * PRECISE, self._versions.budget_s
        looks = []
        for times in LOOKS:
            budget = f"measure.budget_s={budget_s * times:g}" if budget_s else "measure.budget_s=null"
            looks.append(((f"measure.precision={half_width / times:g}", budget), "judge"))
        return looks

    def _say(self, text: str) -> None:
        self._console.print(text, markup=False, soft_wrap=True)
