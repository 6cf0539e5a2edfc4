"""The answer about two versions: one line, one JSON object, one exit status."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perfsweep.pipelines.analysis.effect_result import EffectResult
from perfsweep.pipelines.exits import DONE, SOME_FAILED, UNDECIDED
from perfsweep.pipelines.parity.results import Deviation, ParityResult, ParityVerdict
from perfsweep.pipelines.report.version_answer import Answer, Side, duration_of, judged
from perfsweep.pipelines.statistics.verdicts import Verdict
from perfsweep.pipelines.store.records import Effect
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
        ({"verdict": None}, "undecided", UNDECIDED),
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


def test_the_object_has_a_schema_and_the_commits() -> None:
    values = Answer(BASE, HEAD, margin=0.025, **judged(RESULT)).as_json()
    assert values["schema"] == "perfsweep.judge/2" and values["exit"] == SOME_FAILED
    assert values["base"] == {"name": "main", "commit": "0123456789abcdef"}
    assert values["head"] == {"name": "worktree", "commit": None}
    assert (values["ratio"], values["low"], values["high"], values["level"]) == (1.1, 1.08, 1.12, 0.95)


def test_an_answer_says_what_was_allowed_beside_what_it_took() -> None:
    values = Answer(BASE, HEAD, margin=0.025, seconds=61.26, budget_s=120.0, **judged(RESULT)).as_json()
    assert (values["seconds"], values["budget_s"], values["rounds"]) == (61.3, 120.0, 12)
    bare = Answer(BASE, HEAD, "undecided", "same code", UNDECIDED, 0.025)
    assert (bare.as_json()["budget_s"], bare.time) == (None, "")
    assert bare.line == "undecided: worktree against main (0123456789); results same code"


@pytest.mark.parametrize(
    ("own", "reason"),
    [
        ({"note": "no loss was logged"}, "no loss was logged"),
        ({"held_back": "others had the cores", "note": "no loss"}, "others had the cores"),
        ({}, ""),
    ],
)
def test_why_it_is_as_it_is_stands_behind_the_answer(own: dict, reason: str) -> None:
    answer = Answer(BASE, HEAD, margin=0.025, **judged(replace(RESULT, **own)))
    assert answer.reason == reason
    assert answer.line.endswith(f"results identical; {reason}" if reason else "results identical")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(99.0, "99 s"), (99.6, "100 s"), (100.0, "2 min"), (5999.0, "100 min"), (6000.0, "1.7 h")],
)
def test_a_time_that_somebody_waits_for_is_told_in_the_unit_that_suits_it(seconds: float, text: str) -> None:
    assert duration_of(seconds) == text


WORST = Deviation("loss", 0.0234, 0.01, "worst at [3]", False)


@pytest.mark.parametrize(
    ("parity", "deviation"),
    [
        (ParityResult(ParityVerdict.DIFFERENT, Parity.EXACT, WORST), "loss: 0.023, allowed 0.01"),
        (ParityResult(ParityVerdict.DIFFERENT, Parity.EXACT), ""),
        (ParityResult(ParityVerdict.WITHIN_TOLERANCE, Parity.EXACT, WORST), ""),
        (None, ""),
    ],
)
def test_of_different_results_the_check_that_is_furthest_off_is_told(
    parity: ParityResult | None, deviation: str
) -> None:
    found = judged(replace(RESULT, parity=parity))
    assert found["deviation"] == deviation
    assert found["results"] == (parity.verdict.value if parity else "unchecked")


@pytest.mark.parametrize(
    ("change", "seconds", "needed"),
    [
        (
            {"rounds_needed": 24},
            60.0,
            ("about 24 rounds (2 min of trials) would decide, if the estimate stayed", 24, 120.0),
        ),
        ({"rounds_needed": 24}, 0.0, ("about 24 rounds would decide, if the estimate stayed", 24, None)),
        ({}, 60.0, ("no number of rounds would decide, if the estimate stayed", None, None)),
        ({"held_back": "too few"}, 60.0, ("too few", None, None)),
    ],
)
def test_an_undecided_answer_says_what_would_decide_it(change: dict, seconds: float, needed: tuple) -> None:
    found = judged(replace(RESULT, verdict=Verdict.UNDECIDED, **change), seconds)
    assert (found["reason"], found.get("rounds_needed"), found.get("seconds_needed")) == needed
