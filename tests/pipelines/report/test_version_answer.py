"""The answers about two versions and of a bisection: one line, one JSON object, one exit status."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perfsweep.pipelines.analysis.effect_result import EffectResult
from perfsweep.pipelines.exits import DONE, SOME_FAILED, UNDECIDED
from perfsweep.pipelines.parity.results import ParityResult, ParityVerdict
from perfsweep.pipelines.report.version_answer import (
    Answer,
    BisectAnswer,
    Find,
    Side,
    Step,
    duration_of,
    judged,
    mark_of,
)
from perfsweep.pipelines.statistics.verdicts import Verdict
from perfsweep.pipelines.store.records import Effect
from perfsweep.pipelines.versions.bisection import Mark
from perfsweep.pipelines.versions.repository import Commit
from perfsweep.workloads.api import Parity

EFFECT = Effect(id="e", design="one_at_a_time", toggle="commit", level="HEAD", pairs=(("a", "b"),))
RESULT = EffectResult(
    effect=EFFECT,
    arm_label="commit=HEAD",
    base_label="baseline",
    verdict=Verdict.SLOWER,
    ratio=1.1,
    low=1.08,
    high=1.12,
    rounds=12,
    parity=ParityResult(ParityVerdict.IDENTICAL, Parity.EXACT),
)
BASE, HEAD = Side("main", "0123456789abcdef"), Side("worktree", None)


@pytest.mark.parametrize(
    ("change", "verdict", "status"),
    [
        ({}, "slower", SOME_FAILED),
        ({"verdict": Verdict.FASTER}, "faster", DONE),
        ({"verdict": Verdict.NO_DIFFERENCE}, "no difference", DONE),
        ({"verdict": Verdict.DIFFERENT}, "different results", SOME_FAILED),
        ({"verdict": Verdict.FEWER_UNITS}, "fewer units", SOME_FAILED),
        ({"verdict": Verdict.UNDECIDED}, "undecided", UNDECIDED),
        ({"verdict": Verdict.HELD_BACK}, "undecided", UNDECIDED),
        ({"verdict": None, "outcome": "failed"}, "failed", SOME_FAILED),
        ({"verdict": None, "outcome": "base failed"}, "undecided", UNDECIDED),
        ({"verdict": None, "outcome": "other data"}, "different results", SOME_FAILED),
    ],
)
def test_each_verdict_has_its_word_and_status(change: dict, verdict: str, status: int) -> None:
    found = judged(replace(RESULT, **change))
    assert (found["verdict"], found["status"]) == (verdict, status)


def test_a_head_is_no_worse_than_a_base_that_does_not_run_either() -> None:
    found = judged(replace(RESULT, verdict=None, outcome="failed", note="no module x"), base_runs=False)
    assert (found["verdict"], found["status"], found["failed"]) == ("undecided", UNDECIDED, "base")
    assert found["reason"] == "neither of the two runs: no module x"


def test_the_line_says_what_was_compared_how_and_what_came_out() -> None:
    answer = Answer(BASE, HEAD, margin=0.025, seconds=143.2, **judged(RESULT))
    assert answer.line == (
        "slower: worktree against main (0123456789), 1.10x slower [1.08 .. 1.12]"
        " (12 rounds, 143 s); results identical"
    )


@pytest.mark.parametrize(
    ("change", "seconds", "needed"),
    [
        (
            {"rounds_needed": 24},
            60.0,
            ("about 24 rounds (2 min of trials) would decide, if the estimate stayed", 24, 120.0),
        ),
        ({"rounds_needed": 24}, 0.0, ("about 24 rounds would decide, if the estimate stayed", 24, None)),
        (
            {"rounds_needed": 24, "rounds": 0},
            60.0,
            ("about 24 rounds would decide, if the estimate stayed", 24, None),
        ),
        ({}, 60.0, ("no number of rounds would decide, if the estimate stayed", None, None)),
        ({"held_back": "too few"}, 60.0, ("too few", None, None)),
    ],
)
def test_an_undecided_answer_says_what_would_decide_it(change: dict, seconds: float, needed: tuple) -> None:
    found = judged(replace(RESULT, verdict=Verdict.UNDECIDED, **change), seconds)
    assert (found["reason"], found.get("rounds_needed"), found.get("seconds_needed")) == needed


def test_a_time_to_wait_is_in_seconds_minutes_or_hours() -> None:
    times = [duration_of(seconds) for seconds in (99, 100, 5999, 6000, 3.6e6)]
    assert times == ["99 s", "2 min", "100 min", "1.7 h", "1000.0 h"]


WITH, WITHOUT, SKIPPED, OPEN = Mark.WITH, Mark.WITHOUT, Mark.SKIPPED, Mark.UNDECIDED
GOOD, BAD = Side("v1", "a" * 40), Side("main", "f" * 40)


def answer(verdict: str, results: str = "identical", **fields: object) -> Answer:
    return Answer(GOOD, BAD, verdict, results, 0, 0.02, **fields)  # type: ignore[arg-type]


SLOWER = answer("slower", ratio=1.1, low=1.08, high=1.12, rounds=12, seconds=41.4)
LIKE = answer("no difference", ratio=1.0, low=0.99, high=1.01, rounds=8, seconds=30.0)


@pytest.mark.parametrize(
    ("verdict", "results", "slower", "faster", "different"),
    [
        ("slower", "identical", WITH, WITHOUT, WITHOUT),
        ("faster", "within tolerance", WITHOUT, WITH, WITHOUT),
        ("no difference", "same code", WITHOUT, WITHOUT, WITHOUT),
        ("different results", "different", SKIPPED, SKIPPED, WITH),
        ("fewer units", "identical", SKIPPED, SKIPPED, WITHOUT),
        ("undecided", "identical", OPEN, OPEN, WITHOUT),
        ("undecided", "unchecked", OPEN, OPEN, SKIPPED),
        ("slower", "unchecked", WITH, WITHOUT, SKIPPED),
        ("failed", "unchecked", SKIPPED, SKIPPED, SKIPPED),
    ],
)
def test_what_a_commit_counts_as_depends_on_what_is_looked_for(
    verdict: str, results: str, slower: Mark, faster: Mark, different: Mark
) -> None:
    found = [mark_of(answer(verdict, results), find) for find in Find]
    assert found == [slower, faster, different]


TIMED = "1.10x slower [1.08 .. 1.12], 12 rounds, 41 s"
LOSS = "loss: 0.1, allowed 0.01"
NOISY = replace(SLOWER, verdict="undecided", reason="noise")
NO_BASE = answer("undecided", seconds=3.0, reason="no base")
CHANGED = answer("different results", "different", deviation=LOSS, reason="why", seconds=5.0)


@pytest.mark.parametrize(
    ("mark", "what", "words"),
    [
        (WITH, SLOWER, TIMED),
        (WITHOUT, LIKE, "no difference 1.000x [0.990 .. 1.010], 8 rounds, 30 s"),
        (OPEN, NOISY, f"undecided {TIMED}: noise"),
        (OPEN, NO_BASE, "undecided, 3 s: no base"),
        (WITH, CHANGED, f"results different ({LOSS}), 5 s"),
        (WITHOUT, answer("no difference", "identical", seconds=5.0), "results identical, 5 s"),
        (SKIPPED, answer("failed", "unchecked", reason="it does not import"), "skipped: it does not import"),
        (SKIPPED, CHANGED, f"skipped: different results ({LOSS})"),
        (SKIPPED, answer("fewer units", reason="8 of 10"), "skipped: fewer units (8 of 10)"),
    ],
)
def test_a_step_says_what_came_out_of_its_commit(mark: Mark, what: Answer, words: str) -> None:
    assert Step(0, commit(1), mark, what).what == words


def commit(number: int, *parents: str) -> Commit:
    return Commit(f"{number:x}" * 40, f"change {number}", parents or (f"{number - 1:x}" * 40,))


LINE = tuple(commit(number) for number in range(1, 6))


def bisected(*marks: tuple[int, Mark], find: Find = Find.SLOWER, **fields: object) -> BisectAnswer:
    of = {
        WITH: SLOWER,
        WITHOUT: LIKE,
        SKIPPED: answer("failed", reason="no build"),
        OPEN: answer("undecided", reason="noise"),
    }
    steps = tuple(Step(place, LINE[place], mark, of[mark]) for place, mark in marks)
    values = {"commits": 7, "candidates": LINE, "seconds": 123.44, **fields}
    return BisectAnswer("toy", GOOD, BAD, find, 0.02, steps=steps, **values)  # type: ignore[arg-type]


LAST = (4, WITH)


@pytest.mark.parametrize(
    ("found", "line"),
    [
        (
            bisected(LAST, (2, WITH), (1, WITHOUT)),
            '3333333333 is the first slower commit: "change 3", 1.10x slower [1.08 .. 1.12] against'
            " v1 (aaaaaaaaaa) (3 steps, 123 s)",
        ),
        (
            bisected(LAST, (2, WITH), (0, WITHOUT), find=Find.DIFFERENT),
            "the first commit that changes results is one of 2: 2222222222, 3333333333 (3 steps, 123 s)",
        ),
        (bisected((4, OPEN)), "undecided whether main (ffffffffff) is slower: noise"),
        (
            bisected(candidates=(), commits=2),
            "nothing to find: v1 (aaaaaaaaaa) and main (ffffffffff) have the same code",
        ),
        (
            bisected((4, WITHOUT)),
            "nothing to find: no difference: main (ffffffffff) against v1 (aaaaaaaaaa), 1.000x"
            " [0.990 .. 1.010]; results identical",
        ),
    ],
)
def test_the_answer_is_one_line(found: BisectAnswer, line: str) -> None:
    said = found.line.replace(" (8 rounds, 30 s)", "")
    assert said == line


def test_a_merge_that_is_found_names_the_branch_that_it_brought_in() -> None:
    merge = commit(5, "4" * 40, "b" * 40)
    line = (*LINE[:4], merge)
    found = bisected((3, WITHOUT), candidates=line)
    found = replace(found, steps=(Step(4, merge, WITH, SLOWER), *found.steps))
    assert list(found.log)[-1] == (
        "5555555555 is a merge, and first parents alone are followed: the branch that it brought in ends at"
        " bbbbbbbbbb; bisect that by itself"
    )
