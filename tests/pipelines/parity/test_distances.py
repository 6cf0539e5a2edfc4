"""What comparators measure: distances and angles in double precision, whatever the entries are."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from pipelines.parity.comparison import ParityVerdict, judge
from pipelines.parity.distances import Distance, distance
from workloads.api import Check, Comparator, Evidence, Parity


@pytest.mark.parametrize(
    ("comparator", "deviation"),
    [(Comparator.ABSOLUTE, 0.25), (Comparator.IDENTICAL, 1), (Comparator.RELATIVE, 0.05)],
)
def test_each_comparator_measures_what_it_says(comparator: Comparator, deviation: float) -> None:
    found = distance(comparator, np.array([3.0, 4.0]), np.array([3.25, 4.0]), None, 0.0)
    assert isinstance(found, Distance)
    assert found.value == pytest.approx(deviation, rel=1e-14)  # a handful of float64 roundings


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


def test_a_row_that_vanished_is_as_far_as_a_right_angle() -> None:
    reference = np.ones((3, 4))
    arm = reference.copy()
    arm[1] = 0.0
    checks = (Check("rows", Comparator.WORST_COSINE, bound=0.5),)
    found = judge(Evidence({"rows": reference}), Evidence({"rows": arm}), checks, Parity.TOLERANCE, {})
    assert found.worst is not None and found.worst.value == 1.0 and not found.worst.ok
