"""Rulings of claims: as strict as the verdicts that stand beside them."""

from __future__ import annotations

import dataclasses
import functools
import math

import numpy as np
import pytest
from machines import SHARED, decided

from perfsweep.pipelines.statistics import claim_rules
from perfsweep.pipelines.statistics.claim_rules import (
    SIZE_WORDS,
    Obstacle,
    Ruled,
    Ruling,
    claimed_gain,
    rule_claim,
    rule_predicate,
)
from perfsweep.pipelines.statistics.estimates import Interval
from perfsweep.pipelines.statistics.verdicts import MARGIN, Judgement, Verdict
from perfsweep.workloads.api import Claim, Device

CLAIM = Claim("x", "report", "1", ({"amp": "bf16"},))
claiming = functools.partial(dataclasses.replace, CLAIM)


def judged(a: float, b: float, verdict: Verdict | None = None) -> Judgement:
    """What the corrected interval of speed ratios from a to b says, or another verdict; the plain is less."""
    corrected = Interval(-math.log(b), -math.log(a), 0.99)
    edge = (corrected.high - corrected.low) * 0.4
    plain = Interval(corrected.low + edge, corrected.high - edge, 0.95)
    return Judgement(verdict or _verdict(corrected), plain, corrected=corrected)


def _verdict(interval: Interval) -> Verdict:
    if interval.high < -MARGIN:
        return Verdict.FASTER
    if interval.low > MARGIN:
        return Verdict.SLOWER
    inside = interval.low > -MARGIN and interval.high < MARGIN
    return Verdict.NO_DIFFERENCE if inside else Verdict.UNDECIDED


def ruling(
    claim: Claim, a: float, b: float, ratio: float | None = None, verdict: Verdict | None = None
) -> Ruled:
    """Of a claim, by a speed ratio in the middle of its interval where none is given."""
    return rule_claim(claimed_gain(claim), judged(a, b, verdict), -math.log(ratio or math.sqrt(a * b)))


@pytest.mark.parametrize(
    ("low", "high", "a", "b", "expected"),
    [
        (2.0, 3.0, 2.2, 2.6, Ruling.CONFIRMED),
        (2.0, 3.0, 1.5, 2.8, Ruling.CONFIRMED),
        (2.0, 3.0, 1.5, 2.1, Ruling.UNDECIDED),  # measured below the claim, which the interval touches
        (2.0, 3.0, 1.3, 5.0, Ruling.UNDECIDED),  # not certainly half of the claimed gain
        (2.0, 3.0, 3.1, 3.5, Ruling.EXCEEDED),
        (2.0, 3.0, 1.2, 1.9, Ruling.REFUTED),
        (2.0, 3.0, 0.9, 2.4, Ruling.UNDECIDED),
        (None, 2.0, 1.1, 1.2, Ruling.CONFIRMED),  # up to 2x
        (None, 2.0, 0.8, 0.9, Ruling.REFUTED),
        (1.5, None, 4.0, 5.0, Ruling.CONFIRMED),  # at least 1.5x
        (1.5, None, 1.1, 1.3, Ruling.REFUTED),
        (0.7, 0.8, 0.72, 0.78, Ruling.CONFIRMED),  # 30 % slower
        (0.7, 0.8, 0.5, 0.6, Ruling.EXCEEDED),
        (0.7, 0.8, 0.9, 0.95, Ruling.REFUTED),
        (None, 0.8, 0.1, 0.2, Ruling.CONFIRMED),  # at most 0.8
        (0.7, None, 0.9, 0.95, Ruling.CONFIRMED),  # slower, but no less than 0.7
        (0.9, 1.1, 0.95, 1.005, Ruling.UNDECIDED),  # no effect, of an effect that is undecided itself
        (0.9, 1.1, 0.95, 0.98, Ruling.CONFIRMED),
        (0.9, 1.1, 0.8, 0.85, Ruling.REFUTED),
    ],
)
def test_a_claimed_speed_is_ruled_by_estimate_and_interval(low, high, a, b, expected: Ruling) -> None:
    assert ruling(claiming(low=low, high=high), a, b).ruling is expected


def test_noise_around_one_estimate_never_confirms_what_less_noise_does_not() -> None:
    order = [Ruling.CONFIRMED, Ruling.UNDECIDED]
    widths = np.linspace(1.01, 3, 40)
    rulings = [
        ruling(claiming(low=2.0, high=3.0), 2.4 / width, 2.4 * width, ratio=2.4).ruling for width in widths
    ]
    assert rulings == sorted(rulings, key=order.index) and set(rulings) == set(order)


def test_a_gain_beyond_the_claim_is_confirmed_as_at_least_that() -> None:
    assert ruling(claiming(low=2.0, high=3.0), 2.5, 4.0, ratio=3.2) == Ruled(Ruling.CONFIRMED, "at least")
    assert ruling(claiming(low=2.0, high=3.0), 2.2, 2.9, ratio=2.5) == Ruled(Ruling.CONFIRMED)


@pytest.mark.parametrize(
    ("low", "high", "a", "b", "expected"),
    [
        (0.4, 0.6, 0.45, 0.55, Ruling.CONFIRMED),  # half the memory
        (0.4, 0.6, 0.2, 0.3, Ruling.EXCEEDED),
        (0.4, 0.6, 0.7, 0.8, Ruling.REFUTED),
        (None, 0.7, 0.1, 0.2, Ruling.CONFIRMED),  # at most 70 %
        (None, 1.0, 0.995, 0.998, Ruling.REFUTED),  # less by a rounding
        (1.8, 2.2, 1.9, 2.0, Ruling.CONFIRMED),  # twice the memory
    ],
)
def test_a_claimed_memory_is_ruled_by_the_ratio_of_peaks(low, high, a, b, expected: Ruling) -> None:
    assert ruling(claiming(kind="memory", low=low, high=high), 1 / b, 1 / a).ruling is expected


@pytest.mark.parametrize(
    ("word", "a", "b", "expected"),
    [
        ("high", 1.4, 1.6, Ruling.CONFIRMED),
        ("low", 1.4, 1.6, Ruling.EXCEEDED),
        ("helps", 0.9, 0.95, Ruling.REFUTED),
        ("helps", 0.995, 1.004, Ruling.REFUTED),  # no difference
        ("helps", 1.002, 1.05, Ruling.UNDECIDED),  # within the margin
        ("helps", 0.96, 1.009, Ruling.REFUTED),  # undecided, but no gain that is one is left
        ("slower", 0.995, 1.04, Ruling.REFUTED),
        ("small", 0.96, 1.009, Ruling.REFUTED),
        ("slower", 0.8, 0.9, Ruling.CONFIRMED),
        ("slower", 1.1, 1.2, Ruling.REFUTED),
        ("slightly slower", 0.5, 0.6, Ruling.EXCEEDED),
        ("negligible", 0.995, 1.005, Ruling.CONFIRMED),
        ("negligible", 1.2, 1.3, Ruling.REFUTED),
        ("negligible", 0.9, 1.1, Ruling.UNDECIDED),
    ],
)
def test_a_word_is_ruled_by_its_sign_and_size(word: str, a: float, b: float, expected: Ruling) -> None:
    assert ruling(claiming(kind="qualitative", word=word), a, b).ruling is expected


@pytest.mark.parametrize("kind", ["qualitative", "memory"])
@pytest.mark.parametrize("word", SIZE_WORDS)
def test_every_word_has_bounds_that_some_measurement_confirms(word: str, kind) -> None:
    low, high = claimed_gain(claiming(kind=kind, word=word))
    assert 0 <= low < high
    middle = math.sqrt(max(low, 0.25) * min(high, 4.0))
    assert ruling(claiming(kind=kind, word=word), middle / 1.0001, middle * 1.0001).ruling is Ruling.CONFIRMED


@pytest.mark.parametrize("verdict", [Verdict.UNDECIDED, Verdict.DIFFERENT, Verdict.FEWER_UNITS])
@pytest.mark.parametrize(
    "claim",
    [
        claiming(low=2.0, high=3.0),
        claiming(low=1.0, high=1.1),
        claiming(kind="qualitative", word="faster"),
        claiming(kind="qualitative", word="slower"),
        claiming(kind="qualitative", word="negligible"),
        claiming(kind="memory", high=1.0),
    ],
)
def test_nothing_is_confirmed_of_an_effect_without_a_verdict(claim: Claim, verdict: Verdict) -> None:
    for centre in (0.3, 0.9, 1.0, 1.05, 2.5, 8.0):
        ruled = ruling(claim, centre / 1.001, centre * 1.001, verdict=verdict)
        assert ruled.ruling not in (Ruling.CONFIRMED, Ruling.EXCEEDED)
        if verdict is not Verdict.UNDECIDED:
            assert ruled == Ruled(Ruling.UNDECIDED, verdict.value)


def test_without_an_interval_as_wide_as_the_sweep_asks_for_a_claim_is_undecided_with_the_reason() -> None:
    alone = Judgement(Verdict.UNDECIDED, None, reason="one round has no interval")
    assert rule_claim((2.0, 3.0), alone, -1.0) == Ruled(Ruling.UNDECIDED, "one round has no interval")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (2.5, Ruling.CONFIRMED),
        (3.5, Ruling.REFUTED),
        (1.9, Ruling.REFUTED),
        (0.3 / 0.1 + 1e-15, Ruling.CONFIRMED),  # three, but for rounding
        (None, Ruling.UNDECIDED),
    ],
)
def test_a_predicate_is_ruled_by_its_own_figure(value: float | None, expected: Ruling) -> None:
    counted = claiming(kind="predicate", figure="slabs", low=2.0, high=3.0)
    assert rule_predicate(counted, value).ruling is expected


def test_a_figure_of_an_arm_that_computes_something_else_confirms_nothing() -> None:
    counted = claiming(kind="predicate", figure="slabs", low=2.0, high=3.0)
    assert rule_predicate(counted, 2.5, Verdict.DIFFERENT) == Ruled(Ruling.UNDECIDED, "different")
    assert rule_predicate(counted, 4.0, Verdict.DIFFERENT).ruling is Ruling.REFUTED


@pytest.mark.parametrize(
    ("verdict", "words"),
    [
        (None, ""),
        (Verdict.FASTER, "it acts, and is faster here"),
        (Verdict.SLOWER, "it acts, and is slower here"),
        (Verdict.NO_DIFFERENCE, "it acts, and gains nothing here"),
        (Verdict.UNDECIDED, "it acts, and no gain is certain here"),
    ],
)
def test_that_a_mechanism_acts_is_said_apart_from_what_it_gains(verdict: Verdict | None, words: str) -> None:
    counted = claiming(kind="predicate", figure="count", low=2.0)
    assert rule_predicate(counted, 2.5, verdict) == Ruled(Ruling.CONFIRMED, words)


def test_an_unknown_word_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"'tremendous'; choose from: .*negligible"):
        claimed_gain(claiming(kind="qualitative", word="tremendous"))


def test_a_claim_without_numbers_is_refused() -> None:
    with pytest.raises(ValueError, match="needs a low or a high bound"):
        claimed_gain(CLAIM)


def test_mutant_that_takes_any_touch_for_half_the_gain_is_caught(monkeypatch) -> None:
    monkeypatch.setattr(claim_rules.math, "sqrt", lambda low: 1.0)
    assert ruling(claiming(low=2.0, high=3.0), 1.3, 5.0, ratio=2.5).ruling is Ruling.CONFIRMED


def test_no_comparison_is_read_at_less_than_the_level_where_holm_stops() -> None:
    times = SHARED.sweep(np.random.default_rng(5), 1, [0.0] * 6, rounds=10)[0]
    levels = [found.corrected.level for found in decided(times).verdicts.values() if found.corrected]
    assert levels == pytest.approx([1 - 0.05 / 6] * 6)


CPU = Device(type="cpu", cores=2, compiler=True)
GPU = Device(type="cuda", count=1, name="H200", capability=(9, 0))


def test_what_only_a_gpu_or_a_compiler_brings_stands_in_the_way_of_claims_without_it() -> None:
    for obstacle in (Obstacle.NO_CUDA, Obstacle.NO_TENSOR_CORES):
        assert obstacle.stands(CPU) and not obstacle.stands(GPU)
    assert Obstacle.NO_COMPILER.stands(Device(type="cpu")) and not Obstacle.NO_COMPILER.stands(CPU)
    assert Obstacle.ONE_DEVICE.stands(GPU)
