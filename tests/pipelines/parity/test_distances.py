"""What comparators measure: distances and angles in double precision, whatever the entries are."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from perfsweep.pipelines.parity.deviations import Distance, distance, judge
from perfsweep.pipelines.parity.results import ParityVerdict
from perfsweep.workloads.api import Check, Comparator, Evidence, Parity

finite = st.floats(-1e100, 1e100, allow_subnormal=False)


@given(arrays(np.float64, 7, elements=finite), st.floats(1e-3, 1e3))
def test_the_angle_to_a_multiple_of_itself_is_nothing(vector: np.ndarray, factor: float) -> None:
    found = distance(Comparator.COSINE, vector, vector * factor, None, 0.0)
    # Scaling rounds each entry by half a unit in the last place: the squared chord is of the order of 1e-32.
    assert isinstance(found, Distance) and 0 <= found.value < 1e-30


def test_norms_of_huge_entries_do_not_overflow() -> None:
    found = distance(Comparator.RELATIVE, np.full(4, 1e200), np.full(4, 1.5e200), None, 0.0)
    assert isinstance(found, Distance) and found.value == pytest.approx(0.5)


def test_the_worst_row_decides_however_many_rows_agree() -> None:
    reference = np.random.default_rng(0).standard_normal((50, 8))
    arm = reference.copy()
    arm[31] = -arm[31]
    checks = (Check("rows", Comparator.WORST_COSINE, bound=1e-3),)
    found = judge(Evidence({"rows": reference}), Evidence({"rows": arm}), checks, Parity.TOLERANCE, {})
    assert found.verdict is ParityVerdict.DIFFERENT
    assert found.worst is not None and found.worst.value == pytest.approx(2.0)
    scaled = judge(
        Evidence({"rows": reference}), Evidence({"rows": 3 * reference}), checks, Parity.TOLERANCE, {}
    )
    assert scaled.verdict is ParityVerdict.WITHIN_TOLERANCE


def between(
    reference: object, arm: object, *, by: Comparator = Comparator.ABSOLUTE, bound: float = 0.0, **own: object
) -> Distance | str:
    excuse = np.array(own["excuse"]) if "excuse" in own else None
    return distance(by, np.asarray(reference), np.asarray(arm), excuse, bound)


def test_excused_entries_are_counted_and_neither_deviate_nor_are_the_first_or_worst() -> None:
    for by in (Comparator.ABSOLUTE, Comparator.IDENTICAL):
        found = between([1.0, 2.0, 3.0], [9.0, 2.0, 4.0], by=by, excuse=[True, False, False])
        assert found == Distance(1.0, worst=2, first=2, excused=1)
    size = between([1.0, 1e6], [2.0, 0.0], by=Comparator.RELATIVE, excuse=[False, True])
    assert isinstance(size, Distance) and size.value == 1, "nor is the reference as large as they are"
    masked = between([np.inf, 1.0, 5.0], [np.inf, 1.0, 9.0], excuse=[False, False, True])
    assert masked == Distance(0.0, None, None, 1)


def test_nothing_is_left_where_every_entry_is_excused_and_nothing_deviates_where_there_is_none() -> None:
    words = "all 2 entries are excused, which leaves nothing to compare"
    assert between([1.0, 2.0], [1.0, 2.0], excuse=[True, True]) == words
    empty = np.zeros(0)
    for by in (Comparator.ABSOLUTE, Comparator.RELATIVE, Comparator.IDENTICAL, Comparator.COSINE):
        assert distance(by, empty, empty, np.zeros(0, bool), 0.0) == Distance(0.0, None, None, 0)
    rows = np.zeros((0, 3))
    assert distance(Comparator.WORST_COSINE, rows, rows, None, 0.0) == Distance(0.0, None, None, 0)


@pytest.mark.parametrize(
    ("by", "bound", "first"),
    [
        (Comparator.RELATIVE, 0.1, 2),  # of their own size: 0.1, 0.05 and 0.2
        (Comparator.ABSOLUTE, 0.5, 1),  # by itself: 0.1, 1 and 0.8
        (Comparator.ABSOLUTE, 1.0, None),
        (Comparator.IDENTICAL, 5.0, 0),  # a bound is a number of entries, of which each differs
        (Comparator.COSINE, 1e-9, None),  # an angle belongs to all entries
    ],
)
def test_the_first_entry_beyond_the_bound_is_found_by_the_comparators_own_measure(
    by: Comparator, bound: float, first: int | None
) -> None:
    found = between([-1.0, -20.0, -4.0], [-0.90625, -19.0, -3.203125], by=by, bound=bound)
    assert isinstance(found, Distance) and found.first == first
    assert found.worst is not None


@pytest.mark.parametrize("by", [Comparator.COSINE, Comparator.WORST_COSINE])
def test_an_angle_to_nothing_is_a_right_one_whichever_side_vanished(by: Comparator) -> None:
    for one, other in (([3.0, 4.0], [0.0, 0.0]), ([0.0, 0.0], [3.0, 4.0])):
        found = between(one, other, by=by)
        assert isinstance(found, Distance) and found.value == 1
    assert between([0.0, 0.0], [0.0, 0.0], by=by) == Distance(0.0, None, None, 0)


@pytest.mark.parametrize(
    ("reference", "arm", "problem"),
    [
        ([1.0, np.inf], [1.0, 2.0], "is infinite in 1 entries where the baseline has another value"),
        ([1j, 2j], [1j, complex("nan")], "is NaN in 1 of 2 entries of the arm"),
        ([np.nan, np.nan], [np.nan, 1.0], "is NaN in 2 of 2 entries of the baseline"),
        ([1.0], [1], "is integer, and the baseline is floating"),
        ([[1.0, 2.0]], [1.0, 2.0], "has shape [2], and the baseline has [1, 2]"),
    ],
)
def test_what_cannot_be_compared_is_said_of_the_side_that_has_it(
    reference: list, arm: list, problem: str
) -> None:
    assert between(reference, arm) == problem


def test_widths_and_signs_of_integers_and_of_texts_are_no_kinds_of_their_own() -> None:
    for one, other in (("int64", "uint8"), ("float32", "float16"), ("complex64", "complex128")):
        assert isinstance(between(np.ones(2, one), np.ones(2, other)), Distance)
    differing = between(np.array([1j, 2j]), np.array([1j, 4j]))
    assert isinstance(differing, Distance) and (differing.value, differing.worst) == (2.0, 1)
