"""Arms that draw at random are judged over pairs of runs that share their seeds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from perfsweep.pipelines.parity.evidence import judge_seeds
from perfsweep.pipelines.parity.results import Deviation, ParityResult, ParityVerdict
from perfsweep.workloads.api import Check, Comparator, Evidence, Parity

LOSS = Check("loss", Comparator.RELATIVE)
BEFORE = (2.00, 2.02, 1.98, 2.00)


def runs(losses: Sequence[float], **tensors: object) -> list[Evidence]:
    return [Evidence({k: np.asarray(v) for k, v in tensors.items()}, {"loss": x}) for x in losses]


def judged(
    arm: Sequence[Evidence],
    reference: Sequence[Evidence] | None = None,
    checks: Sequence[Check] = (LOSS,),
    parity: Parity = Parity.STOCHASTIC,
    **bounds: float,
) -> ParityResult:
    return judge_seeds(reference or runs(BEFORE), arm, checks, parity, bounds)


# Shifts of the loss by pair, against BEFORE, whose mean is 2.
NEAR, OFF, WIDE = (0.002, -0.002, 0.002, -0.002), (0.20, 0.21, 0.19, 0.20), (0.1, -0.1, 0.04, 0.0)


def moved(by: Sequence[float]) -> list[Evidence]:
    return runs([a + b for a, b in zip(BEFORE, by, strict=True)])


@pytest.mark.parametrize(
    ("by", "verdict", "ok"),
    [
        (NEAR, ParityVerdict.EQUIVALENT, True),
        (OFF, ParityVerdict.DIFFERENT, False),
        (WIDE, ParityVerdict.UNCHECKED, False),
    ],
)
def test_a_metric_is_equivalent_beyond_the_margin_or_not_decided(
    by: Sequence[float], verdict: ParityVerdict, ok: bool
) -> None:
    result = judged(moved(by))
    assert (result.verdict, result.parity_class) == (verdict, Parity.STOCHASTIC)
    assert result.worst is not None and result.worst.ok is ok


def test_the_reason_says_by_how_much_a_metric_moves_and_within_which_margin() -> None:
    # Differences relative to the mean loss of 2: 10 %, 10.5 %, 9.5 %, 10 %; 90 % by Student's t of three.
    result = judged(moved(OFF))
    half = 2.3534 * 0.00408248 / 2
    words = (
        f"loss moves by +10.00% [{0.1 - half:+.2%}, {0.1 + half:+.2%}] over 4 pairs of seeds, margin 1.00%"
    )
    assert result.reason == words
    worst = Deviation("loss", pytest.approx(0.1 + half, rel=1e-4), 0.01, "mean +0.1 over 4 seeds", False)
    assert result.worst == worst and result.deviations == (worst,)


def test_a_metric_below_zero_moves_up_where_it_gets_larger() -> None:
    reference = runs([-x for x in BEFORE])
    result = judged(runs([-x + 0.2 for x in BEFORE]), reference)
    assert result.reason.startswith("loss moves by +10.00%")


def test_a_stated_bound_is_the_margin() -> None:
    assert judged(moved(OFF), loss=0.2).verdict is ParityVerdict.EQUIVALENT
    assert judged(moved(OFF), loss=0.2).reason.endswith("margin 20.00%")


def test_one_metric_that_differs_makes_the_arm_different_and_an_undecided_one_outweighs_an_equivalent() -> (
    None
):
    def two(first: Sequence[float], second: Sequence[float]) -> ParityResult:
        reference = [Evidence({}, {"a": x, "b": x}) for x in BEFORE]
        both = zip(BEFORE, first, second, strict=True)
        arm = [Evidence({}, {"a": x + a, "b": x + b}) for x, a, b in both]
        return judged(arm, reference, [Check("a", Comparator.RELATIVE), Check("b", Comparator.RELATIVE)])

    assert two(WIDE, OFF).verdict is ParityVerdict.DIFFERENT
    assert two(WIDE, OFF).reason.startswith("b moves")
    assert two(NEAR, WIDE).verdict is ParityVerdict.UNCHECKED
    assert two(NEAR, WIDE).reason.startswith("b moves")
    both = two(NEAR, (0.001, -0.001, 0.001, -0.001))
    assert both.verdict is ParityVerdict.EQUIVALENT and both.reason.startswith("a moves")
    assert both.worst is not None and both.worst.check == "a", "the one that reaches nearest to its margin"


def test_runs_that_cannot_be_compared_name_their_pair() -> None:
    arm = moved(NEAR)
    arm[2] = Evidence({}, {"loss": float("nan")})
    result = judged(arm)
    assert result.verdict is ParityVerdict.DIFFERENT
    assert result.reason.startswith("pair of seeds 2: departs from the baseline: loss: is NaN")


@pytest.mark.parametrize(
    ("parity", "by", "verdict"),
    [
        (Parity.STOCHASTIC, (0.0,) * 4, ParityVerdict.IDENTICAL),
        (Parity.EXACT, (0.0, 0.0, 1e-7, 0.0), ParityVerdict.WITHIN_TOLERANCE),  # the least certain of all
        (Parity.EXACT, NEAR, ParityVerdict.DIFFERENT),
        (Parity.TOLERANCE, NEAR, ParityVerdict.WITHIN_TOLERANCE),
    ],
)
def test_levels_that_draw_nothing_must_pass_with_every_seed(
    parity: Parity, by: Sequence[float], verdict: ParityVerdict
) -> None:
    assert judged(moved(by), parity=parity).verdict is verdict


def test_tensors_are_compared_by_their_means_where_a_margin_is_stated_for_them() -> None:
    check = Check("x", Comparator.RELATIVE)

    def drawn(shift: float) -> list[Evidence]:
        return [Evidence({"x": np.array([a - 1, a + 1 + shift])}) for a in BEFORE]

    stated = judged(drawn(0.02), drawn(0.0), [check], x=0.05)
    assert stated.verdict is ParityVerdict.EQUIVALENT
    assert stated.reason.startswith("x moves by +0.50%")
    silent = judged(drawn(0.02), drawn(0.0), [check])
    reason = "no check is on a number that seeds could be compared by"
    remedy = "; a margin for one is stated as bounds: {x: 0.05}"
    assert (silent.verdict, silent.reason) == (ParityVerdict.UNCHECKED, reason + remedy)


def test_numbers_go_before_tensors_and_what_an_oracle_compared_is_no_metric() -> None:
    own = Check("gap", against="oracle", bound=1.0)
    reference = [Evidence({"x": np.array([a])}, {"loss": a, "gap": 0.1}) for a in BEFORE]
    arm = [
        Evidence({"x": np.array([a + 1])}, {"loss": a + b, "gap": 0.9})
        for a, b in zip(BEFORE, NEAR, strict=True)
    ]
    checks = [own, Check("x", Comparator.RELATIVE), LOSS]
    result = judged(arm, reference, checks, x=0.01)
    assert result.verdict is ParityVerdict.EQUIVALENT
    assert [one.check for one in result.deviations] == ["loss"]
    alone = judged(arm, reference, [own])
    assert alone.verdict is ParityVerdict.UNCHECKED
    assert alone.reason == "no check is on a number that seeds could be compared by"
