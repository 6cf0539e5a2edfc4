"""What a deviation may reach: classes and bounds of an arm from those of its levels."""

from __future__ import annotations

import numpy as np
import pytest

from perfsweep.pipelines.parity.bounds import Bounds, bound_of, is_own, number_bound, stated_bound
from perfsweep.pipelines.parity.deviations import loosest
from perfsweep.workloads.api import Check, Comparator, Evidence, Level, Parity

EXACT, TOLERANCE, STOCHASTIC = Parity.EXACT, Parity.TOLERANCE, Parity.STOCHASTIC


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
    assert (
        loosest([compiled, Level("masks", parity=STOCHASTIC)], checks)[1]["loss"] == 0.01
    )  # the margin over seeds


def test_the_bound_of_a_check_is_what_an_unstated_level_is_held_to() -> None:
    checks = (Check("loss", bound=1e-3),)
    assert loosest([Level("tight", bounds={"loss": 1e-8}), Level("other")], checks)[1] == {"loss": 1e-3}
    assert loosest([Level("wide", bounds={"loss": 1e-1}), Level("other")], checks)[1] == {"loss": 1e-1}


def test_what_a_level_without_a_bound_does_in_rounding_is_allowed_where_no_check_says_otherwise() -> None:
    tight, other = Level("tight", bounds={"loss": 1e-8}), Level("fused")
    assert loosest([tight, other], [Check("loss")])[1].rounding == {"loss"}
    for levels, checks in (
        ([tight], [Check("loss")]),
        ([tight, other], [Check("loss", bound=1e-9)]),
        ([tight, Level("amp", parity=TOLERANCE)], [Check("loss")]),
        ([tight, other], []),
    ):
        assert loosest(levels, checks)[1].rounding == set()


def allowed(
    entry: np.ndarray, check: Check | None = None, parity: Parity = EXACT, bounds: Bounds | None = None
) -> float:
    """What a tensor `x` may depart by."""
    return bound_of(check or Check("x"), "x", entry, Evidence({"x": entry}), parity, bounds or Bounds())


DOUBLE, SINGLE, HALF = (allowed(np.ones(2, dtype)) for dtype in ("float64", "float32", "float16"))


def test_rounding_is_some_steps_of_the_dtype_and_whole_numbers_have_none() -> None:
    for dtype, bound in (("float64", DOUBLE), ("float32", SINGLE), ("float16", HALF)):
        assert np.finfo(dtype).eps < bound < 1e4 * np.finfo(dtype).eps
    assert allowed(np.ones(2, "complex128")) == DOUBLE
    assert allowed(np.ones(2, "complex64")) == SINGLE
    assert allowed(np.ones(2, "int64")) == allowed(np.array(["a"])) == 0


def test_a_number_is_as_precise_as_the_tensors_beside_it() -> None:
    number = np.asarray(2.0)
    for dtypes, bound in ((["float64"], DOUBLE), (["float64", "float32"], SINGLE), ([], SINGLE)):
        tensors = {name: np.ones(2, name) for name in [*dtypes, "int64"]}
        assert bound_of(Check("loss"), "loss", number, Evidence(tensors), EXACT, {}) == bound


def test_an_absolute_check_scales_the_rule_of_a_class_by_the_largest_finite_entry() -> None:
    entry = np.array([-3.0, 2.0, np.inf])
    assert allowed(entry, Check("x", Comparator.ABSOLUTE)) == 3 * DOUBLE
    assert allowed(np.array([np.inf]), Check("x", Comparator.ABSOLUTE)) == 0
    assert allowed(entry, Check("x", Comparator.ABSOLUTE, against="oracle")) == DOUBLE
    assert allowed(entry, Check("x", Comparator.ABSOLUTE, bound=0.5)) == 0.5


def test_rounding_widens_a_tighter_bound_and_no_deviation_of_its_own() -> None:
    tight, entry = Bounds({"x": 1e-8}, ["x"]), np.ones(2, "float32")
    assert allowed(entry, parity=TOLERANCE, bounds=tight) == SINGLE
    assert allowed(np.ones(2), bounds=tight) == 1e-8
    assert allowed(entry, bounds=Bounds({"x": 0.1}, ["x"])) == 0.1
    for own in (Check("x", against="oracle"), Check("x", Comparator.AT_MOST)):
        assert is_own(own) and allowed(entry, own, bounds=tight) == 1e-8
    assert not is_own(Check("x"))


def test_the_bound_of_one_tensor_goes_before_that_of_its_family_and_both_before_the_checks() -> None:
    check = Check("grad/*", bound=0.3)
    assert stated_bound(check, "grad/w", {"grad/w": 0.1, "grad/*": 0.2}) == 0.1
    assert stated_bound(check, "grad/w", {"grad/v": 0.1, "grad/*": 0.2}) == 0.2
    assert stated_bound(check, "grad/w", {}) == 0.3


@pytest.mark.parametrize(
    ("check", "bounds", "bound"),
    [
        (None, {}, (SINGLE, False)),
        (None, {"loss": 0.2}, (0.2, False)),
        (Check("loss", bound=0.3), {}, (0.3, False)),
        (Check("loss", Comparator.ABSOLUTE, bound=0.3), {}, (0.3, True)),
        (Check("loss", Comparator.ABSOLUTE), {}, (SINGLE, False)),  # the rule of a class is relative
        (Check("loss", Comparator.IDENTICAL), {}, (0.0, False)),
        (Check("loss", Comparator.AT_MOST), {}, (0.0, False)),
    ],
)
def test_a_number_may_depart_by_what_is_stated_or_by_rounding(
    check: Check | None, bounds: dict, bound: tuple
) -> None:
    assert number_bound("loss", check, EXACT, bounds) == bound


def test_an_angle_is_held_to_less_than_a_distance_where_products_are_coarse_rows_too() -> None:
    whole, rows, plain = (
        allowed(np.ones(2), Check("x", comparator), TOLERANCE)
        for comparator in (Comparator.COSINE, Comparator.WORST_COSINE, Comparator.RELATIVE)
    )
    assert whole == rows < plain
