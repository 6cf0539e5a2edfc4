"""What a deviation may reach, what passes, and that wrong implementations of a computation are found out."""

from __future__ import annotations

import math

import numpy as np
import pytest
from evidences import tensor_evidence

from perfsweep.pipelines.parity.deviations import judge
from perfsweep.pipelines.parity.results import ParityVerdict, loosest, number_bound, stated_bound
from perfsweep.workloads.api import Check, Comparator, Evidence, Level, Parity

EXACT, TOLERANCE, STOCHASTIC = Parity.EXACT, Parity.TOLERANCE, Parity.STOCHASTIC


IDENTICAL, WITHIN, DIFFERENT, UNCHECKED = (
    ParityVerdict.IDENTICAL,
    ParityVerdict.WITHIN_TOLERANCE,
    ParityVerdict.DIFFERENT,
    ParityVerdict.UNCHECKED,
)


ROWS, WIDTH = 1003, 8  # 1003 is no multiple of any slab below


def verdict(
    reference: object, arm: object, check: Check | None = None, parity: Parity = EXACT, **bounds: float
) -> ParityVerdict:
    """Verdict on one tensor called x."""
    return judge(
        tensor_evidence(x=reference), tensor_evidence(x=arm), [check or Check("x")], parity, bounds
    ).verdict


def regression(slab: int, dtype: str = "float64", mutant: str = "") -> Evidence:
    """Outputs, loss and gradient of a linear model over slabs of rows; `mutant` names a way to err."""
    rng = np.random.default_rng(0)
    data, weights = rng.standard_normal((ROWS, WIDTH)).astype(dtype), rng.standard_normal(WIDTH).astype(dtype)
    outputs = np.zeros((ROWS, WIDTH), dtype)
    losses, counts, gradient = [], [], np.zeros(WIDTH, dtype)
    for start in range(0, ROWS, slab):
        if mutant == "ragged slab dropped" and start + slab > ROWS:
            continue
        first, size = start, min(slab, ROWS - start)
        if mutant == "slab off by one" and start:
            first -= 1
        rows = slice(first, first + size)
        outputs[start : start + size] = data[rows] * weights
        errors = (data[rows] @ weights - 1) ** 2
        losses.append(errors.mean(dtype=dtype))
        counts.append(len(errors))
        gradient += 2 * data[rows].T @ (data[rows] @ weights - 1)
    if mutant == "signs flipped":
        outputs.reshape(-1)[::1000] *= -1
    weighted = None if mutant == "slab means unweighted" else counts
    return Evidence(
        {"outputs": outputs, "gradient": gradient}, {"loss": float(np.average(losses, weights=weighted))}
    )


SLAB_CHECKS = (Check("loss"), Check("gradient"), Check("outputs"))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_another_slab_size_is_within_rounding_but_not_identical(dtype: str) -> None:
    result = judge(regression(64, dtype), regression(17, dtype), SLAB_CHECKS, EXACT, {})
    assert result.verdict is WITHIN
    assert result.worst and 0 < result.worst.ratio < 1


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(
    "mutant", ["signs flipped", "slab off by one", "ragged slab dropped", "slab means unweighted"]
)
def test_a_wrong_implementation_is_different(mutant: str, dtype: str) -> None:
    result = judge(regression(64, dtype), regression(64, dtype, mutant), SLAB_CHECKS, EXACT, {})
    assert result.verdict is DIFFERENT


@pytest.mark.parametrize("mutant", ["signs flipped", "slab off by one", "ragged slab dropped"])
def test_a_wrong_implementation_does_not_hide_behind_the_tolerance_class(mutant: str) -> None:
    result = judge(regression(64, "float32"), regression(64, "float32", mutant), SLAB_CHECKS, TOLERANCE, {})
    assert result.verdict is DIFFERENT


@pytest.mark.parametrize("parity", [EXACT, TOLERANCE, STOCHASTIC])
def test_nan_on_both_sides_is_different(parity: Parity) -> None:
    broken = np.array([1.0, np.nan, 3.0])
    result = judge(
        tensor_evidence(x=broken), tensor_evidence(x=broken), [Check("x")], parity, {"x": math.inf}
    )
    assert result.verdict is DIFFERENT
    assert "NaN in 1 of 3 entries of the baseline" in result.reason


def test_infinities_that_the_reference_has_too_are_masked_scores() -> None:
    assert verdict([1.0, -np.inf, 2.0], [1.0, -np.inf, 2.0 + 1e-15]) is WITHIN


def test_a_new_infinity_is_different_even_where_deviations_are_excused() -> None:
    reference = tensor_evidence(x=[1.0, 2.0], unsure=[False, True])
    arm = tensor_evidence(x=[1.0, np.inf], unsure=[False, True])
    result = judge(reference, arm, [Check("x", excused="unsure")], TOLERANCE, {})
    assert result.verdict is DIFFERENT and "infinite in 1 entries" in result.reason


@pytest.mark.parametrize(("done", "expected"), [(60, IDENTICAL), (59.9, DIFFERENT)])
def test_units_may_miss_the_plan_by_rounding_only(done: float, expected: ParityVerdict) -> None:
    assert judge(regression(64), regression(64), SLAB_CHECKS, EXACT, {}, 60, done).verdict is expected


@pytest.mark.parametrize(
    ("dtype", "parity", "passes", "fails"),
    [
        # Twice and half the bound of class and dtype.
        ("float64", EXACT, 5e-13, 2e-12),
        ("float32", EXACT, 5e-6, 2e-5),
        ("float16", EXACT, 1e-3, 4e-3),
        ("float64", TOLERANCE, 5e-3, 2e-2),
    ],
)
def test_the_bound_follows_class_and_dtype(dtype: str, parity: Parity, passes: float, fails: float) -> None:
    reference = np.ones(4096, dtype)
    for deviation, expected in ((passes, WITHIN), (fails, DIFFERENT)):
        assert (
            verdict(reference, (reference.astype(float) + deviation).astype(dtype), parity=parity) is expected
        )


def test_an_arm_cannot_loosen_its_bound_by_giving_fewer_digits() -> None:
    values = np.random.default_rng(2).standard_normal(100)
    assert verdict(values, values.astype("float16")) is DIFFERENT


def test_the_bound_of_a_level_overrides_that_of_the_check_which_overrides_the_class() -> None:
    reference, arm = np.ones(10), np.full(10, 1.001)
    assert verdict(reference, arm) is DIFFERENT
    assert verdict(reference, arm, Check("x", bound=1e-2)) is WITHIN
    assert verdict(reference, arm, Check("x", bound=1e-2), x=1e-4) is DIFFERENT


@pytest.mark.parametrize("parity", [EXACT, TOLERANCE])
def test_integers_and_booleans_must_be_equal_in_every_class(parity: Parity) -> None:
    assert verdict([2**60, 5], [2**60, 5], parity=parity) is IDENTICAL
    assert verdict([2**60, 5], [2**60 + 1, 5], parity=parity) is DIFFERENT  # equal as float64
    assert verdict([True, False], [True, True], parity=parity) is DIFFERENT


def test_the_rule_for_absolute_deviations_scales_with_the_reference() -> None:
    check = Check("x", Comparator.ABSOLUTE)
    assert verdict([1e6, 1.0], [1e6 + 1e-7, 1.0], check) is WITHIN
    assert verdict([1.0, 1.0], [1.0 + 1e-7, 1.0], check) is DIFFERENT


def test_anything_against_a_zero_reference_is_different() -> None:
    for value in (1e-30, 1e30):
        result = judge(
            tensor_evidence(x=[0.0, 0.0]), tensor_evidence(x=[0.0, value]), [Check("x")], TOLERANCE, {}
        )
        assert result.verdict is DIFFERENT
        assert result.worst and math.isfinite(result.worst.value)


def test_numbers_are_held_to_the_precision_of_the_tensors_beside_them() -> None:
    for dtype, expected in (("float64", DIFFERENT), ("float32", WITHIN)):
        reference = Evidence({"x": np.ones(3, dtype)}, {"loss": 2.0})
        arm = Evidence({"x": np.ones(3, dtype)}, {"loss": 2.0 * (1 + 1e-7)})
        assert judge(reference, arm, [Check("loss"), Check("x")], EXACT, {}).verdict is expected


def test_the_first_check_that_departs_is_named_in_the_declared_order() -> None:
    reference, arm = tensor_evidence(a=[1.0], b=[1.0], c=[1.0]), tensor_evidence(a=[1.0], b=[1.1], c=[9.0])
    result = judge(reference, arm, [Check("c"), Check("a"), Check("b")], EXACT, {})
    assert result.reason.startswith("departs from the baseline: c:")
    assert [deviation.check for deviation in result.deviations] == ["c", "a", "b"]


@pytest.mark.parametrize("arm", [None, Evidence()])
def test_an_arm_without_evidence_is_unchecked(arm: Evidence | None) -> None:
    assert judge(Evidence(), arm, [Check("x")], EXACT, {}).verdict is UNCHECKED


def test_a_workload_without_checks_is_unchecked() -> None:
    assert judge(regression(64), regression(64), [], EXACT, {}).verdict is UNCHECKED


def test_one_run_of_a_stochastic_level_needs_paired_seeds() -> None:
    result = judge(tensor_evidence(x=[1.0, 2.0]), tensor_evidence(x=[1.0, 3.0]), [Check("x")], STOCHASTIC, {})
    assert (result.verdict, result.reason) == (UNCHECKED, "needs paired seeds")


def test_a_float32_cosine_above_one_does_not_hide_a_turned_gradient() -> None:
    gradient = np.full(1_000_000, 0.1, np.float32)
    turned = gradient * np.where(np.arange(1_000_000) % 2, 1.1, 0.9).astype(np.float32)  # 1 - cos = 5e-3

    def float32_cosine(a: np.ndarray, b: np.ndarray) -> float:
        norms = [math.sqrt(np.cumsum(v * v, dtype=np.float32)[-1]) for v in (a, b)]
        return float(a.astype(float) @ b / norms[0] / norms[1])

    assert float32_cosine(gradient, turned) > 1  # sums of squares in float32 lose what they add
    assert verdict(gradient, turned, Check("x", Comparator.COSINE), TOLERANCE) is DIFFERENT


def test_a_level_that_only_reorders_sums_keeps_its_rounding_beside_one_with_a_tighter_bound() -> None:
    tight, reorders = Level("tight", bounds={"loss": 1e-8}), Level("reorders")
    checks = (Check("loss"),)
    single = {"loss": np.ones(4, np.float32)}
    rounded = {"loss": np.ones(4, np.float32) * np.float32(1 + 2e-6)}

    def verdict(*levels: Level) -> ParityVerdict:
        return judge(Evidence(single), Evidence(rounded), checks, *loosest(levels, checks)).verdict

    assert verdict(reorders) is WITHIN
    assert verdict(tight) is DIFFERENT
    assert verdict(tight, reorders) is WITHIN
    # In double precision reordering moves nothing as far as that.
    double = judge(
        Evidence({"loss": np.ones(4)}),
        Evidence({"loss": np.ones(4) * (1 + 2e-6)}),
        checks,
        *loosest((tight, reorders), checks),
    )
    assert double.verdict is DIFFERENT


def test_the_loosest_bound_of_each_check_holds() -> None:
    levels = [
        Level("a", parity=TOLERANCE, bounds={"loss": 1e-4, "grad": 3e-3}),
        Level("b", parity=TOLERANCE, bounds={"loss": 1e-3}),
    ]
    assert loosest(levels, [])[1] == {"loss": 1e-3, "grad": 3e-3}


def test_a_level_that_states_no_bound_allows_what_its_class_does() -> None:
    compiled = Level("full", parity=TOLERANCE, bounds={"loss": 1e-4, "grad": 1e-4})
    checks = [Check("loss"), Check("grad", Comparator.COSINE)]
    assert loosest([compiled, Level("bf16", parity=TOLERANCE)], checks)[1] == {"loss": 1e-2, "grad": 1e-3}
    assert loosest([compiled, Level("fused")], checks)[1] == {"loss": 1e-4, "grad": 1e-4}
    assert (
        loosest([compiled, Level("masks", parity=STOCHASTIC)], checks)[1]["loss"] == 0.01
    )  # the margin over seeds


def test_the_bound_of_a_check_is_what_an_unstated_level_is_held_to() -> None:
    checks = (Check("loss", bound=1e-3),)
    assert loosest([Level("tight", bounds={"loss": 1e-8}), Level("other")], checks)[1] == {"loss": 1e-3}
    assert loosest([Level("wide", bounds={"loss": 1e-1}), Level("other")], checks)[1] == {"loss": 1e-1}


def test_the_bound_of_one_tensor_goes_before_that_of_its_family_and_both_before_the_checks() -> None:
    check = Check("grad/*", bound=0.3)
    assert stated_bound(check, "grad/w", {"grad/w": 0.1, "grad/*": 0.2}) == 0.1
    assert stated_bound(check, "grad/w", {"grad/v": 0.1, "grad/*": 0.2}) == 0.2
    assert stated_bound(check, "grad/w", {}) == 0.3


@pytest.mark.parametrize(
    ("check", "bounds", "bound"),
    [
        (None, {}, (1e-5, False)),
        (None, {"loss": 0.2}, (0.2, False)),
        (Check("loss", Comparator.ABSOLUTE, bound=0.3), {}, (0.3, True)),
        (Check("loss", Comparator.ABSOLUTE), {}, (1e-5, False)),  # the rule of a class is relative
        (Check("loss", Comparator.AT_MOST), {}, (0.0, False)),
    ],
)
def test_a_number_may_depart_by_what_is_stated_or_by_rounding(
    check: Check | None, bounds: dict, bound: tuple
) -> None:
    assert number_bound("loss", check, EXACT, bounds) == bound
