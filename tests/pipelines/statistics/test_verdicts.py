"""Verdicts of a sweep."""

from __future__ import annotations

import numpy as np
import pytest
from machines import paired
from scipy.special import stdtrit

from perfsweep.pipelines.statistics.estimates import Estimate, student_estimate
from perfsweep.pipelines.statistics.verdicts import (
    MARGIN,
    Judgement,
    ReasonCode,
    Verdict,
    decide_verdicts,
    verdict_word,
)


def rounds(log_ratio: float, scatter: float, n: int = 12) -> Estimate:
    """n rounds spread evenly around an effect."""
    return paired(log_ratio + scatter * np.linspace(-1, 1, n))


def sure_to(p: float) -> Estimate:
    """A quarter less time, with this p against no effect."""
    error = 0.29 / float(stdtrit(9, 1 - p / 2))
    return student_estimate(-0.29, error, 9, 10, 10)


def judge(log_ratio: float, scatter: float, margin: float = MARGIN, floor: float = 0.0) -> Judgement:
    return decide_verdicts({"effect": rounds(log_ratio, scatter)}, margin=margin, floor=floor)["effect"]


@pytest.mark.parametrize(
    ("log_ratio", "scatter", "floor", "verdict", "code"),
    [
        (-0.20, 0.02, 0.0, Verdict.FASTER, ReasonCode.CALLED_FASTER),
        (0.20, 0.02, 0.0, Verdict.SLOWER, ReasonCode.CALLED_SLOWER),
        (0.00, 0.005, 0.0, Verdict.NO_DIFFERENCE, ReasonCode.INSIDE_MARGIN),
        (-0.005, 0.002, 0.0, Verdict.NO_DIFFERENCE, ReasonCode.INSIDE_MARGIN),  # certainly not zero
        (0.00, 0.10, 0.0, Verdict.UNDECIDED, ReasonCode.HOLDS_ZERO),
        (-0.012, 0.005, 0.0, Verdict.UNDECIDED, ReasonCode.REACHES_INTO_MARGIN),
        (-0.03, 0.005, 0.0, Verdict.FASTER, ReasonCode.CALLED_FASTER),
        (-0.03, 0.005, 0.04, Verdict.UNDECIDED, ReasonCode.BELOW_PLACEBO_FLOOR),
        (-0.10, 0.005, 0.04, Verdict.FASTER, ReasonCode.CALLED_FASTER),
    ],
)
def test_interval_margin_and_floor_of_equal_arms_decide(
    log_ratio: float, scatter: float, floor: float, verdict: Verdict, code: ReasonCode
) -> None:
    judged = judge(log_ratio, scatter, floor=floor)
    assert (judged.verdict, judged.code) == (verdict, code)


def test_an_undecided_effect_says_how_many_rounds_would_decide() -> None:
    judged = judge(-0.05, 0.10)
    assert judged.verdict is Verdict.UNDECIDED
    assert judged.rounds is not None and judged.rounds > 12
    assert judge(-0.20, 0.02).rounds is None


def test_the_sweep_as_a_whole_is_corrected() -> None:
    # Its p of 0.0077 is enough for six comparisons and not for seven. It is decided among seven all the same
    # when a surer one comes before it.
    effect, nulls = sure_to(0.0077), {f"null {i}": rounds(0.0, 0.1) for i in range(6)}
    five = dict(list(nulls.items())[:5])
    alone = decide_verdicts({"effect": effect}, margin=0.0)
    six = decide_verdicts({"effect": effect, **five}, margin=0.0)
    seven = decide_verdicts({"effect": effect, **nulls}, margin=0.0)
    helped = decide_verdicts({"effect": effect, "surer": rounds(-0.2, 0.01, 16), **five}, margin=0.0)
    verdicts = [result["effect"].verdict for result in (alone, six, seven, helped)]
    assert verdicts == [Verdict.FASTER, Verdict.FASTER, Verdict.UNDECIDED, Verdict.FASTER]


def test_the_decided_interval_is_holms_and_the_undecided_one_is_plain() -> None:
    results = decide_verdicts(
        {"effect": rounds(-0.2, 0.02), "null": rounds(0.0, 0.1), "other": rounds(0.01, 0.1)}
    )
    decided, undecided = results["effect"].interval, results["null"].interval
    assert decided is not None and undecided is not None
    assert decided.level == pytest.approx(1 - 0.05 / 3)
    assert undecided.level == 0.95


def test_a_reader_sees_a_word_for_each_reason_to_hold_a_verdict_back() -> None:
    codes = (None, "other", ReasonCode.ONLY_A_LOOK, ReasonCode.TOO_FEW_ROUNDS, ReasonCode.UNLIKE_BEATS)
    words = [verdict_word(Verdict.HELD_BACK, code) for code in codes]
    assert words == ["too noisy", "too noisy", "only a look", "too few rounds", "unlike regions"]
    assert [verdict_word(one, "other") for one in (Verdict.FASTER, "inert")] == ["faster", "no effect"]


def test_the_margin_can_be_chosen() -> None:
    assert judge(-0.03, 0.005, margin=0.05).verdict is Verdict.NO_DIFFERENCE


DIFFERENT = Judgement(Verdict.DIFFERENT, None, code=ReasonCode.RESULTS_DIFFER)


def test_a_withheld_comparison_keeps_its_verdict_and_is_not_counted() -> None:
    effect, others = sure_to(0.0077), {f"different {i}": rounds(-0.02, 0.1) for i in range(10)}
    assert decide_verdicts({"effect": effect, **others})["effect"].verdict is Verdict.UNDECIDED
    results = decide_verdicts({"effect": effect, **others}, dict.fromkeys(others, DIFFERENT))
    assert results["effect"].verdict is Verdict.FASTER
    assert {results[name].verdict for name in others} == {Verdict.DIFFERENT}
    assert results["different 0"].holm is None


def test_the_codes_of_too_few_rounds_and_of_the_correction() -> None:
    one = decide_verdicts({"one": paired([-0.5])})["one"]
    assert (one.verdict, one.code) == (Verdict.UNDECIDED, ReasonCode.TOO_FEW_ROUNDS)
    assert "one round has no interval" in one.reason
    nulls = {f"null {i}": rounds(0.0, 0.1) for i in range(10)}
    results = decide_verdicts({"effect": sure_to(0.0077), **nulls})
    assert results["effect"].code is ReasonCode.HOLM_NOT_REJECTED


def test_withholding_from_an_unknown_comparison_is_refused() -> None:
    with pytest.raises(ValueError, match="without an estimate: typo"):
        decide_verdicts({"effect": rounds(0, 0.1)}, {"typo": DIFFERENT})
