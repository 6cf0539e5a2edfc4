"""Levels that draw at random: paired seeds and two one-sided tests decide, or say how many would."""

from __future__ import annotations

import math

import numpy as np
import pytest

from perfsweep.pipelines.parity.evidence import judge_seeds
from perfsweep.pipelines.parity.results import ParityResult, ParityVerdict
from perfsweep.pipelines.statistics.estimates import tost
from perfsweep.workloads.api import Check, Evidence, Parity


def equivalent_share(deviation: float, pairs: int, shift: float = 0.0, trials: int = 1500) -> float:
    rng = np.random.default_rng(pairs)
    draws = rng.normal(shift, deviation, (trials, pairs))
    return float(np.mean([tost(draw, 0.01).equivalent is True for draw in draws]))


@pytest.mark.parametrize(
    ("deviation", "shares"),
    [(0.003, (0.93, 1.0, 1.0)), (0.006, (0.41, 0.83, 0.99)), (0.012, (0.07, 0.16, 0.40))],
)
def test_equal_arms_are_found_equivalent_as_often_as_planned(
    deviation: float, shares: tuple[float, ...]
) -> None:
    for pairs, share in zip((3, 5, 8), shares, strict=True):
        # Four binomial standard errors at 1500 trials (0.052 at one half), and the planned share's rounding.
        assert equivalent_share(deviation, pairs) == pytest.approx(
            share, abs=4 * math.sqrt(share * (1 - share) / 1500) + 0.01
        )


@pytest.mark.parametrize("pairs", [3, 5, 8])
def test_a_shift_of_one_margin_rarely_passes_for_none(pairs: int) -> None:
    assert equivalent_share(0.003, pairs, shift=0.01) <= 0.05 + 4 * math.sqrt(0.05 * 0.95 / 1500)


def test_the_needed_number_of_seeds_shows_equality_nine_times_in_ten() -> None:
    spread = np.random.default_rng(3).normal(0, 1, 4)
    spread = 0.009 * (spread - spread.mean()) / spread.std(ddof=1)
    needed = tost(spread, 0.01).seeds_needed
    assert needed == math.ceil((2.93 * 0.9) ** 2 + 2) == 9
    # The normal approximation with both one-sided tests at nearly full power; 0.8 is its known loss.
    assert equivalent_share(0.009, needed) > 0.8


@pytest.mark.parametrize(
    ("differences", "equivalent"),
    [
        ([0.0, 0.0, 0.0], True),
        ([0.02, 0.021, 0.022], False),
        ([0.0, 0.02, -0.02], None),
        ([0.008, 0.0105, 0.009], None),  # surely above zero, not surely within the margin
        ([0.0], None),
        ([], None),
        ([0.0, math.nan], None),
    ],
)
def test_the_interval_decides_only_where_it_lies_wholly_inside_or_beyond(
    differences: list[float], equivalent: bool | None
) -> None:
    assert tost(differences, 0.01).equivalent is equivalent


def seeds(*values: float) -> list[Evidence]:
    return [Evidence({"weights": np.array([value])}, {"loss": value}) for value in values]


BASE = seeds(2.0, 2.1, 1.9)


def judged(
    after: list[Evidence], parity: Parity = Parity.STOCHASTIC, before: list[Evidence] = BASE, **bounds: float
) -> ParityResult:
    return judge_seeds(before, after, (Check("loss"), Check("weights")), parity, bounds)


@pytest.mark.parametrize(
    ("arm", "expected", "reason"),
    [
        ((2.001, 2.102, 1.901), ParityVerdict.EQUIVALENT, "loss moves by"),
        ((2.1, 2.201, 2.0), ParityVerdict.DIFFERENT, "loss moves by"),
        ((2.1, 2.0, 1.92), ParityVerdict.UNCHECKED, "pairs would decide"),
        ((2.0, 2.1, 1.9), ParityVerdict.IDENTICAL, ""),
        ((2.0, math.nan, 1.9), ParityVerdict.DIFFERENT, "pair of seeds 1"),
    ],
)
def test_paired_seeds_decide_on_a_stochastic_level(
    arm: tuple[float, ...], expected: ParityVerdict, reason: str
) -> None:
    result = judged(seeds(*arm))
    assert result.verdict is expected and reason in result.reason


def test_the_bound_of_a_stochastic_level_is_its_margin() -> None:
    assert judged(seeds(2.1, 2.201, 2.0), loss=0.1).verdict is ParityVerdict.EQUIVALENT


def test_tensors_are_no_metric_until_a_margin_is_stated_and_the_reason_says_how() -> None:
    before, after = ([Evidence({"losses": np.array([x, x])}) for x in xs] for xs in ((2.0, 2.1), (2.1, 2.0)))
    result = judge_seeds(before, after, (Check("losses"),), Parity.STOCHASTIC, {})
    assert result.verdict is ParityVerdict.UNCHECKED
    assert result.reason.endswith("a margin for one is stated as bounds: {losses: 0.05}")


@pytest.mark.parametrize(
    ("second", "expected"),
    [
        (2.1, ParityVerdict.IDENTICAL),
        (2.1 + 1e-14, ParityVerdict.WITHIN_TOLERANCE),
        (2.2, ParityVerdict.DIFFERENT),
    ],
)
def test_exact_levels_must_pass_with_every_seed(second: float, expected: ParityVerdict) -> None:
    assert judged(seeds(2.0, second, 1.9), Parity.EXACT).verdict is expected


def test_no_seeds_are_unchecked() -> None:
    assert judged([], before=[]).verdict is ParityVerdict.UNCHECKED
