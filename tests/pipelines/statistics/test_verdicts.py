"""Verdicts of a sweep."""

from __future__ import annotations

import numpy as np
import pytest
from machines import paired
from scipy.special import stdtrit

from perfsweep.pipelines.statistics.estimates import Estimate, Method, holm, student_estimate
from perfsweep.pipelines.statistics.verdicts import MARGIN, Judgement, ReasonCode, Verdict, decide_verdicts


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
    ("log_ratio", "scatter", "verdict"),
    [
        (-0.20, 0.02, Verdict.FASTER),
        (0.20, 0.02, Verdict.SLOWER),
        (0.00, 0.005, Verdict.NO_DIFFERENCE),
        (-0.005, 0.002, Verdict.NO_DIFFERENCE),  # certainly not zero, and certainly not worth a word
        (0.00, 0.10, Verdict.UNDECIDED),
        (-0.012, 0.01, Verdict.UNDECIDED),  # the interval crosses the margin
        (-0.20, 0.50, Verdict.UNDECIDED),
    ],
)
def test_the_interval_and_the_margin_decide(log_ratio: float, scatter: float, verdict: Verdict) -> None:
    assert judge(log_ratio, scatter).verdict is verdict


def test_an_undecided_effect_says_how_many_rounds_would_decide() -> None:
    judged = judge(-0.05, 0.10)
    assert judged.verdict is Verdict.UNDECIDED
    assert judged.rounds is not None and judged.rounds > 12
    assert judge(-0.20, 0.02).rounds is None


def test_an_effect_of_one_round_is_undecided_with_the_reason_in_words() -> None:
    judged = decide_verdicts({"effect": paired([-0.5])})["effect"]
    assert judged.verdict is Verdict.UNDECIDED
    assert "one round has no interval" in judged.reason


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


def test_without_holm_twenty_nulls_would_make_a_claim() -> None:
    # A null that is the luckiest of twenty: p of about 0.02, which its own 95 % interval would call faster.
    lucky = sure_to(0.02)
    assert lucky.interval is not None and lucky.interval.high < -MARGIN
    nulls = {f"null {i}": rounds(0.0, 0.1) for i in range(19)}
    assert decide_verdicts({"lucky": lucky, **nulls})["lucky"].verdict is Verdict.UNDECIDED


def test_no_effect_below_what_two_equal_arms_showed_is_called() -> None:
    assert judge(-0.03, 0.005).verdict is Verdict.FASTER
    assert judge(-0.03, 0.005, floor=0.04).verdict is Verdict.UNDECIDED
    assert judge(-0.10, 0.005, floor=0.04).verdict is Verdict.FASTER


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


@pytest.mark.parametrize(
    ("log_ratio", "scatter", "floor", "code"),
    [
        (-0.2, 0.01, 0.0, ReasonCode.CALLED_FASTER),
        (0.2, 0.01, 0.0, ReasonCode.CALLED_SLOWER),
        (0.0, 0.001, 0.0, ReasonCode.INSIDE_MARGIN),
        (0.0, 0.1, 0.0, ReasonCode.HOLDS_ZERO),
        (-0.012, 0.005, 0.0, ReasonCode.REACHES_INTO_MARGIN),
        (-0.03, 0.005, 0.04, ReasonCode.BELOW_PLACEBO_FLOOR),
    ],
)
def test_every_verdict_has_a_reason_code(
    log_ratio: float, scatter: float, floor: float, code: ReasonCode
) -> None:
    assert judge(log_ratio, scatter, floor=floor).code is code


def test_the_codes_of_too_few_rounds_and_of_the_correction() -> None:
    assert decide_verdicts({"one": paired([-0.5])})["one"].code is ReasonCode.TOO_FEW_ROUNDS
    nulls = {f"null {i}": rounds(0.0, 0.1) for i in range(10)}
    results = decide_verdicts({"effect": sure_to(0.0077), **nulls})
    assert results["effect"].code is ReasonCode.HOLM_NOT_REJECTED


def test_withholding_from_an_unknown_comparison_is_refused() -> None:
    with pytest.raises(ValueError, match="without an estimate: typo"):
        decide_verdicts({"effect": rounds(0, 0.1)}, {"typo": DIFFERENT})


def test_a_comparison_without_p_counts_among_the_others() -> None:
    assert [step.level for step in holm([None, 0.2])] == pytest.approx([0.95, 0.975])


def test_methods_are_words_that_a_table_can_show() -> None:
    assert [method.value for method in Method] == ["pooled variance", "confidence sequence", "none"]
