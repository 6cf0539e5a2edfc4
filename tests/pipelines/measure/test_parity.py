"""Parity: what passes, what does not, and that wrong implementations of a computation are found out."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from pipelines.measure.distances import Distance, distance
from pipelines.measure.parity import ParityVerdict, digest, judge, judge_seeds, loosest, tost
from workloads.api import Check, Comparator, Evidence, Level, Parity

EXACT, TOLERANCE, STOCHASTIC = Parity.EXACT, Parity.TOLERANCE, Parity.STOCHASTIC
IDENTICAL, WITHIN, DIFFERENT, UNCHECKED = (
    ParityVerdict.IDENTICAL,
    ParityVerdict.WITHIN_TOLERANCE,
    ParityVerdict.DIFFERENT,
    ParityVerdict.UNCHECKED,
)
ROWS, WIDTH = 1003, 8  # 1003 is no multiple of any slab below


def tensor_evidence(**tensors: object) -> Evidence:
    return Evidence({name: np.asarray(tensor) for name, tensor in tensors.items()})


def verdict(reference: object, arm: object, check: Check | None = None, parity: Parity = EXACT, **bounds: float) -> ParityVerdict:
    """Verdict on one tensor called x."""
    return judge(tensor_evidence(x=reference), tensor_evidence(x=arm), [check or Check("x")], parity, bounds).verdict


def regression(slab: int, dtype: str = "float64", mutant: str = "") -> Evidence:
    """Outputs, loss and gradient of a linear model over rows taken in slabs; `mutant` names a way to get it wrong."""
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
    return Evidence({"outputs": outputs, "gradient": gradient}, {"loss": float(np.average(losses, weights=weighted))})


SLAB_CHECKS = (Check("loss"), Check("gradient"), Check("outputs"))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_another_slab_size_is_within_rounding_but_not_identical(dtype: str) -> None:
    result = judge(regression(64, dtype), regression(17, dtype), SLAB_CHECKS, EXACT, {})
    assert result.verdict is WITHIN
    assert result.worst and 0 < result.worst.ratio < 1


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("mutant", ["signs flipped", "slab off by one", "ragged slab dropped", "slab means unweighted"])
def test_a_wrong_implementation_is_different(mutant: str, dtype: str) -> None:
    result = judge(regression(64, dtype), regression(64, dtype, mutant), SLAB_CHECKS, EXACT, {})
    assert result.verdict is DIFFERENT


@pytest.mark.parametrize("mutant", ["signs flipped", "slab off by one", "ragged slab dropped"])
def test_a_wrong_implementation_does_not_hide_behind_the_tolerance_class(mutant: str) -> None:
    result = judge(regression(64, "float32"), regression(64, "float32", mutant), SLAB_CHECKS, TOLERANCE, {})
    assert result.verdict is DIFFERENT


@pytest.mark.parametrize("parity", [EXACT, TOLERANCE])
def test_flipping_a_thousandth_of_the_signs_turns_a_gradient_too_far(parity: Parity) -> None:
    gradient = np.random.default_rng(1).standard_normal(100_000)
    flipped = gradient * np.where(np.arange(100_000) % 1000 == 0, -1, 1)  # 1 - cos is about 2e-3
    assert verdict(gradient, flipped, Check("x", Comparator.COSINE), parity) is DIFFERENT


def test_equal_bytes_are_identical() -> None:
    assert judge(regression(64), regression(64), SLAB_CHECKS, EXACT, {}).verdict is IDENTICAL


@pytest.mark.parametrize("parity", [EXACT, TOLERANCE, STOCHASTIC])
def test_nan_on_both_sides_is_different(parity: Parity) -> None:
    broken = np.array([1.0, np.nan, 3.0])
    result = judge(tensor_evidence(x=broken), tensor_evidence(x=broken), [Check("x")], parity, {"x": math.inf})
    assert result.verdict is DIFFERENT
    assert "NaN in 1 of 3 entries of the reference" in result.reason


def test_a_nan_number_is_different() -> None:
    evidence = Evidence(numbers={"loss": math.nan})
    assert judge(evidence, evidence, [Check("loss")], TOLERANCE, {}).verdict is DIFFERENT


def test_infinities_that_the_reference_has_too_are_masked_scores() -> None:
    assert verdict([1.0, -np.inf, 2.0], [1.0, -np.inf, 2.0 + 1e-15]) is WITHIN


@pytest.mark.parametrize("arm", [[1.0, np.inf], [1.0, 2.0], [1.0, np.nan]])
def test_an_infinity_with_another_sign_or_lost_or_nan_is_different(arm: list[float]) -> None:
    assert verdict([1.0, -np.inf], arm, parity=TOLERANCE) is DIFFERENT


def test_a_new_infinity_is_different_even_where_deviations_are_excused() -> None:
    reference = tensor_evidence(x=[1.0, 2.0], unsure=[False, True])
    arm = tensor_evidence(x=[1.0, np.inf], unsure=[False, True])
    result = judge(reference, arm, [Check("x", excused="unsure")], TOLERANCE, {})
    assert result.verdict is DIFFERENT and "infinite in 1 entries" in result.reason


@pytest.mark.parametrize(
    ("reference", "arm", "words"),
    [
        ({"x": np.ones(3)}, {}, "x: missing in the arm"),
        ({}, {"x": np.ones(3)}, "x: missing in the reference"),
        ({"x": np.ones(3)}, {"x": np.ones((3, 1))}, "has shape [3, 1], and the reference has [3]"),
        ({"x": np.ones(3)}, {"x": np.ones(3, int)}, "is integer, and the reference is floating"),
        ({"x": np.ones(3, bool)}, {"x": np.ones(3, int)}, "is integer, and the reference is boolean"),
    ],
)
def test_what_cannot_be_compared_is_different_and_named(reference: dict, arm: dict, words: str) -> None:
    result = judge(Evidence(reference), Evidence(arm), [Check("x")], STOCHASTIC, {})
    assert result.verdict is DIFFERENT
    assert words in result.reason


def test_an_arm_that_did_fewer_units_is_different_whatever_it_computed() -> None:
    result = judge(regression(64), regression(64), SLAB_CHECKS, EXACT, {}, units_expected=60, units_done=40)
    assert (result.verdict, result.reason) == (DIFFERENT, "did 40 of 60 units")


@pytest.mark.parametrize(("done", "expected"), [(60, IDENTICAL), (60 - 1e-10, IDENTICAL), (59.9, DIFFERENT)])
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
        ("float32", TOLERANCE, 5e-3, 2e-2),
    ],
)
def test_the_bound_follows_class_and_dtype(dtype: str, parity: Parity, passes: float, fails: float) -> None:
    reference = np.ones(4096, dtype)
    for deviation, expected in ((passes, WITHIN), (fails, DIFFERENT)):
        assert verdict(reference, (reference.astype(float) + deviation).astype(dtype), parity=parity) is expected


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


def test_a_stated_bound_lets_integers_move() -> None:
    assert verdict([1000, 2000], [1001, 2000], Check("x", bound=1e-2)) is WITHIN
    assert verdict([1000, 2000], [1100, 2000], Check("x", bound=1e-2)) is DIFFERENT


def test_the_rule_for_absolute_deviations_scales_with_the_reference() -> None:
    check = Check("x", Comparator.ABSOLUTE)
    assert verdict([1e6, 1.0], [1e6 + 1e-7, 1.0], check) is WITHIN
    assert verdict([1.0, 1.0], [1.0 + 1e-7, 1.0], check) is DIFFERENT


def test_negative_zero_is_within_tolerance_and_not_identical() -> None:
    assert verdict([0.0, 1.0], [-0.0, 1.0]) is WITHIN


def test_zero_against_zero_deviates_by_nothing() -> None:
    result = judge(tensor_evidence(x=[0.0, 0.0]), tensor_evidence(x=[0.0, -0.0]), [Check("x")], EXACT, {})
    assert result.deviations[0].value == 0


def test_anything_against_a_zero_reference_is_different() -> None:
    for value in (1e-30, 1e30):
        result = judge(tensor_evidence(x=[0.0, 0.0]), tensor_evidence(x=[0.0, value]), [Check("x")], TOLERANCE, {})
        assert result.verdict is DIFFERENT
        assert result.worst and math.isfinite(result.worst.value)


def test_numbers_are_held_to_the_precision_of_the_tensors_beside_them() -> None:
    for dtype, expected in (("float64", DIFFERENT), ("float32", WITHIN)):
        reference = Evidence({"x": np.ones(3, dtype)}, {"loss": 2.0})
        arm = Evidence({"x": np.ones(3, dtype)}, {"loss": 2.0 * (1 + 1e-7)})
        assert judge(reference, arm, [Check("loss"), Check("x")], EXACT, {}).verdict is expected


def test_the_first_step_that_departs_is_named() -> None:
    losses = np.linspace(2, 1, 60)
    arm = losses.copy()
    arm[17:] *= 1 + np.linspace(1e-3, 1e-2, 43)
    result = judge(tensor_evidence(losses=losses), tensor_evidence(losses=arm), [Check("losses")], EXACT, {})
    assert "losses" in result.reason and "first at [17], worst at [59]" in result.reason


def test_the_first_step_is_found_by_its_own_size() -> None:
    losses = np.geomspace(1.0, 1e-4, 5)
    arm = losses * [1.0, 1.0, 1.0, 1.05, 1.5]  # these deviations are small beside the first loss
    result = judge(tensor_evidence(x=losses), tensor_evidence(x=arm), [Check("x", bound=1e-5)], EXACT, {})
    assert result.worst and result.worst.where.startswith("first at [3]")
    tolerant = distance(Comparator.RELATIVE, losses, arm, None, 1e-2)
    assert isinstance(tolerant, Distance) and tolerant.first == 3


def test_the_first_check_that_departs_is_named_in_the_declared_order() -> None:
    reference, arm = tensor_evidence(a=[1.0], b=[1.0], c=[1.0]), tensor_evidence(a=[1.0], b=[1.1], c=[9.0])
    result = judge(reference, arm, [Check("c"), Check("a"), Check("b")], EXACT, {})
    assert result.reason.startswith("departs from the reference: c:")
    assert [deviation.check for deviation in result.deviations] == ["c", "a", "b"]


def test_the_worst_entry_of_a_matrix_is_located() -> None:
    reference = np.ones((4, 5))
    arm = reference.copy()
    arm[2, 3] = 2
    result = judge(tensor_evidence(x=reference), tensor_evidence(x=arm), [Check("x")], EXACT, {})
    assert result.worst and result.worst.where == "worst at [2, 3]"


def test_a_pattern_checks_every_tensor_it_matches() -> None:
    reference = Evidence({"grad/a": np.ones(3), "grad/b": np.ones(3), "other": np.ones(3)})
    arm = Evidence({"grad/a": np.ones(3), "grad/b": np.full(3, 1.5), "other": np.ones(3)})
    result = judge(reference, arm, [Check("grad/*")], EXACT, {})
    assert [(d.check, d.ok) for d in result.deviations] == [("grad/a", True), ("grad/b", False)]


def test_a_plain_name_matches_itself_only() -> None:
    reference, arm = tensor_evidence(loss=[1.0], loss_scale=[1.0]), tensor_evidence(loss=[1.0], loss_scale=[2.0])
    assert [d.check for d in judge(reference, arm, [Check("loss")], EXACT, {}).deviations] == ["loss"]


def test_a_tensor_that_only_one_arm_has_fails_a_pattern() -> None:
    result = judge(
        Evidence({"grad/a": np.ones(3), "grad/b": np.ones(3)}), Evidence({"grad/a": np.ones(3)}), [Check("grad/*")], EXACT, {}
    )
    assert result.verdict is DIFFERENT and "grad/b: missing in the arm" in result.reason


def test_excused_entries_do_not_count_and_their_number_is_reported() -> None:
    reference = tensor_evidence(rank=[1, 2, 3, 4], unsure=[False, True, False, False])
    arm = tensor_evidence(rank=[1, 9, 3, 9], unsure=[False, False, False, True])
    result = judge(reference, arm, [Check("rank", excused="unsure")], EXACT, {})
    assert result.verdict is WITHIN  # an entry unsure on either side is excused
    assert result.deviations[0].excused == 2


def test_an_entry_outside_the_mask_is_not_excused() -> None:
    reference = tensor_evidence(rank=[1, 2, 3], unsure=[False, True, False])
    arm = tensor_evidence(rank=[9, 2, 3], unsure=[False, True, False])
    assert judge(reference, arm, [Check("rank", excused="unsure")], EXACT, {}).verdict is DIFFERENT


def test_a_mask_over_rows_excuses_whole_rows() -> None:
    reference = tensor_evidence(x=np.ones((3, 2)), unsure=[False, True, False])
    arm = tensor_evidence(x=[[1.0, 1.0], [7.0, 7.0], [1.0, 1.0]], unsure=[False, True, False])
    result = judge(reference, arm, [Check("x", excused="unsure")], EXACT, {})
    assert (result.verdict, result.deviations[0].excused) == (WITHIN, 2)


@pytest.mark.parametrize(
    ("mask", "words"),
    [
        ({"unsure": [True, True, True]}, "all 3 entries are excused"),
        ({"unsure": [True, False]}, "does not fit"),
        ({"unsure": [1, 0, 0]}, "does not fit"),
        ({}, "neither arm has the mask unsure"),
    ],
)
def test_an_excuse_that_cannot_be_meant_is_different(mask: dict, words: str) -> None:
    evidence = tensor_evidence(x=[1.0, 2.0, 3.0], **mask)
    result = judge(evidence, evidence, [Check("x", excused="unsure")], EXACT, {})
    assert result.verdict is DIFFERENT and words in result.reason


ORACLE = Check("excess", Comparator.AT_MOST, 1e-5, against="oracle")


@pytest.mark.parametrize(("excess", "expected"), [([0.0, 9e-6], WITHIN), ([0.0, 2e-5], DIFFERENT), ([0.0, math.nan], DIFFERENT)])
def test_an_oracle_judges_the_largest_entry_of_the_arms_own_evidence(excess: list[float], expected: ParityVerdict) -> None:
    assert judge(None, tensor_evidence(excess=excess), [ORACLE], EXACT, {}).verdict is expected


def test_an_oracle_without_a_bound_allows_nothing() -> None:
    check = Check("excess", Comparator.AT_MOST, against="oracle")
    assert judge(None, tensor_evidence(excess=[1e-9]), [check], TOLERANCE, {}).verdict is DIFFERENT
    assert judge(None, tensor_evidence(excess=[0.0]), [check], TOLERANCE, {}).verdict is WITHIN


def test_missing_oracle_evidence_is_different() -> None:
    assert judge(None, Evidence(), [ORACLE], EXACT, {}).verdict is DIFFERENT


def oracle_evidence(excess: float, x: float) -> Evidence:
    return Evidence({"x": np.array([x])}, {"excess": excess})


@pytest.mark.parametrize(
    ("reference", "arm", "expected", "words"),
    [
        # (excess over the oracle's optimum, x): the oracle allows an excess of 1e-5.
        ((1e-3, 1.0), (1e-6, 1.5), WITHIN, "meets every oracle"),
        ((1e-3, 1.0), (1e-3, 1.0), IDENTICAL, "the reference itself fails an oracle"),
        ((1e-3, 1.0), (1e-3, 1.0 + 1e-14), WITHIN, "the reference itself fails an oracle"),
        ((1e-3, 1.0), (1e-3, 1.5), DIFFERENT, "departs from the reference"),
        ((1e-6, 1.0), (1e-3, 1.0), DIFFERENT, "fails its oracle"),
        ((1e-6, 1.0), (1e-6, 1.5), DIFFERENT, "departs from the reference"),
        ((1e-3, 1.0), (math.nan, 1.0), DIFFERENT, "fails its oracle"),
    ],
)
def test_an_arm_may_leave_a_reference_that_fails_the_oracle_only_by_meeting_it(
    reference: tuple[float, float], arm: tuple[float, float], expected: ParityVerdict, words: str
) -> None:
    result = judge(oracle_evidence(*reference), oracle_evidence(*arm), [Check("x"), ORACLE], EXACT, {})
    assert result.verdict is expected
    assert words in result.reason


def test_a_broken_arm_is_not_saved_by_a_reference_that_fails_the_oracle() -> None:
    result = judge(oracle_evidence(1e-3, 1.0), oracle_evidence(1e-6, math.nan), [Check("x"), ORACLE], EXACT, {})
    assert result.verdict is DIFFERENT


def test_without_a_reference_nothing_but_oracles_is_judged() -> None:
    result = judge(None, oracle_evidence(0.0, 1.0), [Check("x"), ORACLE], EXACT, {})
    assert (result.verdict, result.reason) == (UNCHECKED, "no evidence to compare for x")


@pytest.mark.parametrize("arm", [None, Evidence()])
def test_an_arm_without_evidence_is_unchecked(arm: Evidence | None) -> None:
    assert judge(Evidence(), arm, [Check("x")], EXACT, {}).verdict is UNCHECKED


def test_a_workload_without_checks_is_unchecked() -> None:
    assert judge(regression(64), regression(64), [], EXACT, {}).verdict is UNCHECKED


def test_one_run_of_a_stochastic_level_needs_paired_seeds() -> None:
    result = judge(tensor_evidence(x=[1.0, 2.0]), tensor_evidence(x=[1.0, 3.0]), [Check("x")], STOCHASTIC, {})
    assert (result.verdict, result.reason) == (UNCHECKED, "needs paired seeds")


@pytest.mark.parametrize(
    ("comparator", "deviation"), [(Comparator.ABSOLUTE, 0.25), (Comparator.IDENTICAL, 1), (Comparator.RELATIVE, 0.05)]
)
def test_each_comparator_measures_what_it_says(comparator: Comparator, deviation: float) -> None:
    found = distance(comparator, np.array([3.0, 4.0]), np.array([3.25, 4.0]), None, 0.0)
    assert isinstance(found, Distance)
    assert found.value == pytest.approx(deviation, rel=1e-14)  # a handful of float64 roundings


def test_a_float32_cosine_above_one_does_not_hide_a_turned_gradient() -> None:
    gradient = np.full(1_000_000, 0.1, np.float32)
    turned = gradient * np.where(np.arange(1_000_000) % 2, 1.1, 0.9).astype(np.float32)  # 1 - cos = 5e-3

    def float32_cosine(a: np.ndarray, b: np.ndarray) -> float:
        norms = [math.sqrt(np.cumsum(v * v, dtype=np.float32)[-1]) for v in (a, b)]
        return float(a.astype(float) @ b / norms[0] / norms[1])

    assert float32_cosine(gradient, turned) > 1  # sums of squares in float32 lose what they add
    assert verdict(gradient, turned, Check("x", Comparator.COSINE), TOLERANCE) is DIFFERENT


finite = st.floats(-1e100, 1e100, allow_subnormal=False)


@given(arrays(np.float64, 7, elements=finite), st.floats(1e-3, 1e3))
def test_the_angle_to_a_multiple_of_itself_is_nothing(vector: np.ndarray, factor: float) -> None:
    found = distance(Comparator.COSINE, vector, vector * factor, None, 0.0)
    # Scaling rounds each entry by half a unit in the last place: the squared chord is of the order of 1e-32.
    assert isinstance(found, Distance) and 0 <= found.value < 1e-30


@given(arrays(np.float64, 7, elements=finite), arrays(np.float64, 7, elements=finite))
def test_angles_lie_between_parallel_and_opposite(a: np.ndarray, b: np.ndarray) -> None:
    found = distance(Comparator.COSINE, a, b, None, 0.0)
    assert isinstance(found, Distance) and 0 <= found.value <= 2 + 1e-14


def test_a_gradient_that_vanished_is_as_far_as_one_at_right_angles() -> None:
    found = distance(Comparator.COSINE, np.array([3.0, 4.0]), np.zeros(2), None, 0.0)
    assert isinstance(found, Distance) and found.value == 1


def test_norms_of_huge_entries_do_not_overflow() -> None:
    found = distance(Comparator.RELATIVE, np.full(4, 1e200), np.full(4, 1.5e200), None, 0.0)
    assert isinstance(found, Distance) and found.value == pytest.approx(0.5)


@given(arrays(np.float64, 20, elements=st.floats(-10, 10)), st.integers(0, 19))
def test_a_single_changed_entry_is_found(vector: np.ndarray, place: int) -> None:
    changed = vector.copy()
    changed[place] += 1
    found = distance(Comparator.IDENTICAL, vector, changed, None, 0.0)
    assert isinstance(found, Distance) and (found.value, found.worst, found.first) == (1, place, place)


def test_equal_bytes_of_another_shape_or_dtype_have_another_digest() -> None:
    zeros = np.zeros(4, np.float32)
    assert len({digest(zeros), digest(zeros.reshape(2, 2)), digest(zeros.view(np.int32)), digest(zeros.view(np.float64))}) == 4


def test_an_arm_has_the_loosest_class_of_its_levels() -> None:
    levels = [Level("a"), Level("b", parity=TOLERANCE), Level("c")]
    assert loosest(levels)[0] is TOLERANCE
    assert loosest([*levels, Level("d", parity=STOCHASTIC)])[0] is STOCHASTIC
    assert loosest([]) == (EXACT, {})


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
    assert loosest([compiled, Level("masks", parity=STOCHASTIC)], checks)[1]["loss"] == 0.01  # the margin over seeds


def equivalent_share(deviation: float, pairs: int, shift: float = 0.0, trials: int = 1500) -> float:
    rng = np.random.default_rng(pairs)
    draws = rng.normal(shift, deviation, (trials, pairs))
    return float(np.mean([tost(draw, 0.01).equivalent is True for draw in draws]))


@pytest.mark.parametrize(
    ("deviation", "shares"),
    [(0.003, (0.93, 1.0, 1.0)), (0.006, (0.41, 0.83, 0.99)), (0.012, (0.07, 0.16, 0.40))],
)
def test_equal_arms_are_found_equivalent_as_often_as_planned(deviation: float, shares: tuple[float, ...]) -> None:
    for pairs, share in zip((3, 5, 8), shares, strict=True):
        # Four binomial standard errors at 1500 trials (0.052 at one half), and the rounding of the planned share.
        assert equivalent_share(deviation, pairs) == pytest.approx(share, abs=4 * math.sqrt(share * (1 - share) / 1500) + 0.01)


@pytest.mark.parametrize("pairs", [3, 5, 8])
def test_a_shift_of_one_margin_rarely_passes_for_none(pairs: int) -> None:
    assert equivalent_share(0.003, pairs, shift=0.01) <= 0.05 + 4 * math.sqrt(0.05 * 0.95 / 1500)


def test_the_needed_number_of_seeds_shows_equality_nine_times_in_ten() -> None:
    spread = np.random.default_rng(3).normal(0, 1, 4)
    spread = 0.009 * (spread - spread.mean()) / spread.std(ddof=1)
    needed = tost(spread, 0.01).seeds_needed
    assert needed == math.ceil((2.93 * 0.9) ** 2 + 2) == 9
    # The formula is the normal approximation with both one-sided tests at nearly full power; 0.8 is its known loss.
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


STOCHASTIC_CHECKS = (Check("loss"), Check("weights"))


@pytest.mark.parametrize(
    ("arm", "expected"),
    [
        ((2.001, 2.102, 1.901), ParityVerdict.EQUIVALENT),
        ((2.1, 2.201, 2.0), DIFFERENT),
        ((2.1, 2.0, 1.92), UNCHECKED),
    ],
)
def test_paired_seeds_decide_on_a_stochastic_level(arm: tuple[float, ...], expected: ParityVerdict) -> None:
    result = judge_seeds(seeds(2.0, 2.1, 1.9), seeds(*arm), STOCHASTIC_CHECKS, STOCHASTIC, {})
    assert result.verdict is expected
    assert result.reason.startswith("loss moves by")


def test_a_stochastic_level_that_changes_no_bit_is_identical() -> None:
    assert judge_seeds(seeds(2.0, 2.1), seeds(2.0, 2.1), STOCHASTIC_CHECKS, STOCHASTIC, {}).verdict is IDENTICAL


def test_undecided_seeds_say_how_many_would_decide() -> None:
    result = judge_seeds(seeds(2.0, 2.1, 1.9), seeds(2.1, 2.0, 1.92), STOCHASTIC_CHECKS, STOCHASTIC, {})
    assert "pairs would decide" in result.reason


def test_the_bound_of_a_stochastic_level_is_its_margin() -> None:
    arm = seeds(2.1, 2.201, 2.0)
    assert (
        judge_seeds(seeds(2.0, 2.1, 1.9), arm, STOCHASTIC_CHECKS, STOCHASTIC, {"loss": 0.1}).verdict is ParityVerdict.EQUIVALENT
    )


def test_one_broken_seed_is_different() -> None:
    result = judge_seeds(seeds(2.0, 2.1, 1.9), seeds(2.0, math.nan, 1.9), STOCHASTIC_CHECKS, STOCHASTIC, {})
    assert result.verdict is DIFFERENT and result.reason.startswith("pair of seeds 1")


def test_exact_levels_must_pass_with_every_seed() -> None:
    reference = seeds(2.0, 2.1, 1.9)
    assert judge_seeds(reference, reference, STOCHASTIC_CHECKS, EXACT, {}).verdict is IDENTICAL
    assert judge_seeds(reference, seeds(2.0, 2.1 + 1e-14, 1.9), STOCHASTIC_CHECKS, EXACT, {}).verdict is WITHIN
    assert judge_seeds(reference, seeds(2.0, 2.2, 1.9), STOCHASTIC_CHECKS, EXACT, {}).verdict is DIFFERENT


def test_no_seeds_are_unchecked() -> None:
    assert judge_seeds([], [], STOCHASTIC_CHECKS, STOCHASTIC, {}).verdict is UNCHECKED


def test_results_are_values() -> None:
    result = judge(regression(64), regression(17), SLAB_CHECKS, EXACT, {})
    with pytest.raises(dataclasses.FrozenInstanceError):
        result.verdict = IDENTICAL  # type: ignore[misc]


def test_the_worst_row_decides_however_many_rows_agree() -> None:
    reference = np.random.default_rng(0).standard_normal((50, 8))
    arm = reference.copy()
    arm[31] = -arm[31]
    checks = (Check("rows", Comparator.WORST_COSINE, bound=1e-3),)
    found = judge(Evidence({"rows": reference}), Evidence({"rows": arm}), checks, Parity.TOLERANCE, {})
    assert found.verdict is ParityVerdict.DIFFERENT
    assert found.worst is not None and found.worst.value == pytest.approx(2.0)
    scaled = judge(Evidence({"rows": reference}), Evidence({"rows": 3 * reference}), checks, Parity.TOLERANCE, {})
    assert scaled.verdict is ParityVerdict.WITHIN_TOLERANCE


def test_a_row_that_vanished_is_as_far_as_a_right_angle() -> None:
    reference = np.ones((3, 4))
    arm = reference.copy()
    arm[1] = 0.0
    checks = (Check("rows", Comparator.WORST_COSINE, bound=0.5),)
    found = judge(Evidence({"rows": reference}), Evidence({"rows": arm}), checks, Parity.TOLERANCE, {})
    assert found.worst is not None and found.worst.value == 1.0 and not found.worst.ok
