"""Verdicts of a sweep, and rulings of claims."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pipelines.statistics.estimates import Estimate, Interval, Method, estimate_effect, holm
from pipelines.statistics.verdicts import (
    MARGIN,
    SIZE_WORDS,
    Judgement,
    Obstacle,
    ReasonCode,
    Ruling,
    Verdict,
    decide_verdicts,
    rule_claim,
)
from workloads.api import Device


def rounds(log_ratio: float, scatter: float, n: int = 12) -> Estimate:
    """n rounds spread evenly around an effect."""
    return estimate_effect(log_ratio + scatter * np.linspace(-1, 1, n))


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
    judged = decide_verdicts({"effect": estimate_effect([-0.5])})["effect"]
    assert judged.verdict is Verdict.UNDECIDED
    assert "one round has no interval" in judged.reason


def test_the_sweep_as_a_whole_is_corrected() -> None:
    # Eight rounds that agree have p = 2 / 2^8: enough for six comparisons and not for seven. Two effects that
    # agree are decided among seven all the same when a third one, with more rounds, comes before them.
    agreeing = estimate_effect(np.linspace(-0.3, -0.2, 8))
    nulls = {f"null {i}": rounds(0.0, 0.1) for i in range(6)}
    alone = decide_verdicts({"effect": agreeing})
    six = decide_verdicts({"effect": agreeing, **dict(list(nulls.items())[:5])})
    seven = decide_verdicts({"effect": agreeing, **nulls})
    helped = decide_verdicts(
        {"effect": agreeing, "surer": rounds(-0.2, 0.01, 16), **dict(list(nulls.items())[:5])}
    )
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
    lucky = estimate_effect(
        np.array([-0.05, -0.04, -0.06, -0.045, -0.055, -0.05, -0.03, 0.012, 0.004, -0.02])
    )
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
    agreeing = estimate_effect(np.linspace(-0.3, -0.2, 8))
    others = {f"different {i}": rounds(-0.02, 0.1) for i in range(10)}
    assert decide_verdicts({"effect": agreeing, **others})["effect"].verdict is Verdict.UNDECIDED
    results = decide_verdicts({"effect": agreeing, **others}, dict.fromkeys(others, DIFFERENT))
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
    assert decide_verdicts({"one": estimate_effect([-0.5])})["one"].code is ReasonCode.TOO_FEW_ROUNDS
    agreeing = estimate_effect(np.linspace(-0.3, -0.2, 8))
    nulls = {f"null {i}": rounds(0.0, 0.1) for i in range(6)}
    results = decide_verdicts({"effect": agreeing, **nulls})
    assert results["effect"].code is ReasonCode.HOLM_NOT_REJECTED


def test_withholding_from_an_unknown_comparison_is_refused() -> None:
    with pytest.raises(ValueError, match="without an estimate: typo"):
        decide_verdicts({"effect": rounds(0, 0.1)}, {"typo": DIFFERENT})


def test_a_comparison_without_p_counts_among_the_others() -> None:
    assert [step.level for step in holm([None, 0.2])] == pytest.approx([0.95, 0.975])


def measured(a: float, b: float) -> Interval:
    """The log-ratio interval of speed ratios from a to b."""
    return Interval(-math.log(b), -math.log(a))


@pytest.mark.parametrize(
    ("low", "high", "a", "b", "ruling"),
    [
        (2.0, 3.0, 2.2, 2.6, Ruling.CONFIRMED),
        (2.0, 3.0, 1.5, 2.1, Ruling.CONFIRMED),
        (2.0, 3.0, 2.9, 3.5, Ruling.CONFIRMED),
        (2.0, 3.0, 3.1, 3.5, Ruling.EXCEEDED),
        (2.0, 3.0, 1.2, 1.9, Ruling.REFUTED),
        (2.0, 3.0, 0.7, 0.8, Ruling.REFUTED),
        (2.0, 3.0, 0.9, 2.4, Ruling.UNDECIDED),
        (2.0, 3.0, 0.5, 9.0, Ruling.UNDECIDED),
        (None, 2.0, 1.1, 1.2, Ruling.CONFIRMED),  # up to 2x
        (None, 2.0, 0.8, 0.9, Ruling.REFUTED),
        (None, 2.0, 0.9, 1.1, Ruling.UNDECIDED),
        (1.5, None, 4.0, 5.0, Ruling.CONFIRMED),  # at least 1.5x
        (1.5, None, 1.1, 1.3, Ruling.REFUTED),
        (0.7, 0.8, 0.72, 0.78, Ruling.CONFIRMED),  # 30 % slower
        (0.7, 0.8, 0.5, 0.6, Ruling.EXCEEDED),
        (0.7, 0.8, 0.9, 0.95, Ruling.REFUTED),
        (0.7, 0.8, 1.2, 1.3, Ruling.REFUTED),
        (0.7, 0.8, 0.75, 1.1, Ruling.UNDECIDED),
        (None, 0.8, 0.1, 0.2, Ruling.CONFIRMED),  # at most 0.8
        (0.7, None, 0.9, 0.95, Ruling.CONFIRMED),  # slower, but no less than 0.7
    ],
)
def test_a_claimed_speed_is_ruled_by_the_interval(
    low: float | None, high: float | None, a: float, b: float, ruling: Ruling
) -> None:
    assert rule_claim("speedup", low, high, None, measured(a, b)) is ruling


@pytest.mark.parametrize(
    ("low", "high", "a", "b", "ruling"),
    [
        (0.4, 0.6, 0.45, 0.55, Ruling.CONFIRMED),  # half the memory
        (0.4, 0.6, 0.2, 0.3, Ruling.EXCEEDED),
        (0.4, 0.6, 0.7, 0.8, Ruling.REFUTED),
        (0.4, 0.6, 0.5, 1.1, Ruling.UNDECIDED),
        (None, 0.7, 0.1, 0.2, Ruling.CONFIRMED),  # at most 70 %
        (1.8, 2.2, 1.9, 2.0, Ruling.CONFIRMED),  # twice the memory
        (1.8, 2.2, 1.0, 1.1, Ruling.REFUTED),
    ],
)
def test_a_claimed_memory_is_ruled_by_the_ratio_of_peaks(
    low: float | None, high: float, a: float, b: float, ruling: Ruling
) -> None:
    assert rule_claim("memory", low, high, None, Interval(math.log(a), math.log(b))) is ruling


@pytest.mark.parametrize(
    ("word", "a", "b", "ruling"),
    [
        ("high", 1.4, 1.6, Ruling.CONFIRMED),
        ("high", 1.01, 1.05, Ruling.REFUTED),
        ("low", 1.02, 1.05, Ruling.CONFIRMED),
        ("low", 1.4, 1.6, Ruling.EXCEEDED),
        ("helps", 0.9, 0.95, Ruling.REFUTED),
        ("helps", 0.99, 1.05, Ruling.UNDECIDED),
        ("slower", 0.8, 0.9, Ruling.CONFIRMED),
        ("slower", 1.1, 1.2, Ruling.REFUTED),
        ("slightly slower", 0.5, 0.6, Ruling.EXCEEDED),
        ("negligible", 0.995, 1.005, Ruling.CONFIRMED),
        ("negligible", 1.2, 1.3, Ruling.REFUTED),
        ("negligible", 0.7, 0.8, Ruling.REFUTED),
        ("negligible", 0.9, 1.1, Ruling.UNDECIDED),
    ],
)
def test_a_word_is_ruled_by_its_sign_and_size(word: str, a: float, b: float, ruling: Ruling) -> None:
    assert rule_claim("qualitative", None, None, word, measured(a, b)) is ruling


@pytest.mark.parametrize("word", SIZE_WORDS)
def test_every_word_has_bounds_that_some_measurement_confirms(word: str) -> None:
    low, high = SIZE_WORDS[word]
    assert 0 <= low < high
    middle = math.sqrt(max(low, 0.25) * min(high, 4.0))
    assert (
        rule_claim("qualitative", None, None, word, measured(middle / 1.0001, middle * 1.0001))
        is Ruling.CONFIRMED
    )


@pytest.mark.parametrize(
    ("holds", "ruling"), [(True, Ruling.CONFIRMED), (False, Ruling.REFUTED), (None, Ruling.UNDECIDED)]
)
def test_a_predicate_is_ruled_by_counters_and_not_by_times(holds: bool | None, ruling: Ruling) -> None:
    assert rule_claim("predicate", None, None, None, measured(5.0, 6.0), holds=holds) is ruling


@pytest.mark.parametrize(("kind", "word"), [("speedup", None), ("memory", None), ("qualitative", "high")])
def test_a_claim_without_a_measurement_is_undecided(kind, word: str | None) -> None:
    assert rule_claim(kind, 2.0, 3.0, word, None) is Ruling.UNDECIDED


def test_an_unknown_word_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"'tremendous'; choose from: .*negligible"):
        rule_claim("qualitative", None, None, "tremendous", measured(1, 2))


def test_a_claim_without_numbers_is_refused() -> None:
    with pytest.raises(ValueError, match="needs a low or a high bound"):
        rule_claim("speedup", None, None, None, measured(1, 2))


CPU = Device(type="cpu", cores=2, compiler=True)
GPU = Device(type="cuda", count=1, name="H200", capability=(9, 0))


@pytest.mark.parametrize("obstacle", [Obstacle.NO_CUDA, Obstacle.NO_TENSOR_CORES])
def test_what_only_a_gpu_has_stands_in_the_way_of_claims_on_a_cpu(obstacle: Obstacle) -> None:
    assert obstacle.stands(CPU)
    assert not obstacle.stands(GPU)


def test_a_missing_compiler_stands_on_a_cpu_without_one() -> None:
    assert Obstacle.NO_COMPILER.stands(Device(type="cpu"))
    assert not Obstacle.NO_COMPILER.stands(CPU)
    assert Obstacle.ONE_DEVICE.stands(GPU)


def test_methods_are_words_that_a_table_can_show() -> None:
    assert [method.value for method in Method] == ["signed rank", "pooled variance", "t", "none"]
