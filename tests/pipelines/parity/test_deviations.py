"""How far results lie from those of an oracle or a reference: distances, bounds, and where they are."""

from __future__ import annotations

import math

import numpy as np
import pytest
from evidences import tensor_evidence
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from perfsweep.pipelines.parity.deviations import (
    Distance,
    distance,
    judge,
    oracle_deviations,
    reference_deviations,
)
from perfsweep.pipelines.parity.results import Deviation, ParityVerdict
from perfsweep.workloads.api import Check, Comparator, Evidence, Parity

EXACT, TOLERANCE, STOCHASTIC = Parity.EXACT, Parity.TOLERANCE, Parity.STOCHASTIC
ABSOLUTE, RELATIVE = Comparator.ABSOLUTE, Comparator.RELATIVE

FLAT = Check("x", ABSOLUTE, 0.1)
ORACLE = Check("gap", against="oracle", bound=0.5)


def departed(
    reference: Evidence, arm: Evidence, check: Check = FLAT, parity: Parity = EXACT, **bounds: float
) -> list[Deviation]:
    return reference_deviations(reference, arm, check, parity, bounds)


def one(*args: object, **bounds: float) -> Deviation:
    (deviation,) = departed(*args, **bounds)  # type: ignore[arg-type]
    return deviation


@pytest.mark.parametrize(
    ("gaps", "value", "where", "ok"),
    [
        ([0.1, 0.5, 0.2], 0.5, "[1]", True),  # the bound itself is within it
        ([0.1, 0.2, 0.6], 0.6, "[2]", False),
        ([[0.1, 0.2], [0.7, 0.3]], 0.7, "[1, 0]", False),
        (0.3, 0.3, "", True),
        ([0.6, math.nan], math.inf, "is nan", False),
        ([], math.inf, "is empty", False),
    ],
)
def test_the_largest_entry_of_an_oracles_evidence_counts(
    gaps: object, value: float, where: str, ok: bool
) -> None:
    (found,) = oracle_deviations(tensor_evidence(gap=gaps), [ORACLE], EXACT, {})
    assert found == Deviation("gap", value, 0.5, where, ok)


def test_an_oracle_without_evidence_is_broken_and_the_next_is_judged_all_the_same() -> None:
    checks = [Check("lost", against="oracle", bound=1.0), FLAT, ORACLE]
    lost, gap = oracle_deviations(tensor_evidence(gap=[0.1], x=[9.0]), checks, EXACT, {})
    assert lost == Deviation("lost", math.inf, 0.0, "there is no such evidence", False)
    assert (gap.check, gap.ok) == ("gap", True)


@pytest.mark.parametrize(
    ("reference", "arm", "value", "ok", "where"),
    [
        ([1.0, 2.0, 3.0], [1.0, 2.05, 3.0], 0.05, True, "worst at [1]"),
        ([1.0, 2.0, 3.0], [1.0, 2.2, 3.5], 0.5, False, "first at [1], worst at [2]"),
        ([[1.0, 2.0], [3.0, 4.0]], [[1.2, 2.0], [3.0, 4.5]], 0.5, False, "worst at [1, 1]"),
        ([1.0, 2.0], [1.0, 2.0], 0.0, True, ""),
        (1.0, 1.5, 0.5, False, ""),
    ],
)
def test_a_deviation_says_where_it_is_largest_and_of_a_series_where_deviations_begin(
    reference: object, arm: object, value: float, ok: bool, where: str
) -> None:
    found = one(tensor_evidence(x=reference), tensor_evidence(x=arm))
    assert (found.value, found.bound) == (pytest.approx(value), 0.1)
    assert (found.ok, found.where, found.excused) == (ok, where, 0)


@pytest.mark.parametrize(("at", "part"), [(1, "weight"), (2, "bias"), (5, "?")])
def test_a_flat_tensor_of_named_pieces_says_which_piece_deviates_most(at: int, part: str) -> None:
    arm = np.zeros(6)
    arm[at] = 1.0
    reference = Evidence({"x": np.zeros(6)}, parts={"x": {"weight": 2, "bias": 3}})
    assert one(reference, tensor_evidence(x=arm)).where == f"worst in {part}"


def test_single_runs_of_a_stochastic_level_may_differ_by_anything_that_can_be_compared() -> None:
    reference = tensor_evidence(x=[1.0])
    assert not one(reference, tensor_evidence(x=[9.0]), FLAT, TOLERANCE).ok
    assert one(reference, tensor_evidence(x=[9.0]), FLAT, STOCHASTIC).ok
    broken = one(reference, tensor_evidence(x=[math.nan]), FLAT, STOCHASTIC)
    assert (broken.ok, broken.value) == (False, math.inf)
    assert broken.where == "is NaN in 1 of 1 entries of the arm"


@pytest.mark.parametrize(
    ("reference", "arm", "where"),
    [
        (tensor_evidence(x=[1.0]), tensor_evidence(), "missing in the arm"),
        (tensor_evidence(), tensor_evidence(x=[1.0]), "missing in the baseline"),
    ],
)
def test_evidence_of_one_side_only_is_a_deviation_that_says_which_side_lacks_it(
    reference: Evidence, arm: Evidence, where: str
) -> None:
    assert one(reference, arm) == Deviation("x", math.inf, 0.0, where, False)


def test_neither_side_having_the_evidence_is_no_deviation() -> None:
    assert departed(tensor_evidence(y=[1.0]), tensor_evidence(y=[2.0])) == []


def test_a_pattern_compares_each_name_of_either_side_once() -> None:
    reference = tensor_evidence(**{"grad/a": [1.0], "grad/b": [1.0], "loss": [1.0]})
    arm = tensor_evidence(**{"grad/b": [2.0], "grad/a": [1.0], "grad/c": [1.0], "loss": [9.0]})
    found = departed(reference, arm, Check("grad/*", ABSOLUTE, 0.1))
    assert [(one.check, one.ok) for one in found] == [("grad/a", True), ("grad/b", False), ("grad/c", False)]


@pytest.mark.parametrize(("bounds", "value", "ok"), [({}, 1.0, False), ({"x": 0.5}, 0.25, True)])
def test_whole_numbers_must_be_the_same_unless_a_bound_is_stated(
    bounds: dict[str, float], value: float, ok: bool
) -> None:
    found = one(tensor_evidence(x=[4]), tensor_evidence(x=[5]), Check("x", RELATIVE), TOLERANCE, **bounds)
    assert (found.value, found.ok) == (value, ok)


MASKED = Check("x", ABSOLUTE, 0.1, excused="ties")


@pytest.mark.parametrize(
    ("ours", "theirs", "value", "excused"),
    [
        ([True, False], None, 0.0, 1),
        (None, [True, False], 0.0, 1),
        ([True, False], [False, True], None, None),  # together they leave nothing
        ([False, True], [False, False], 5.0, 1),
    ],
)
def test_entries_that_either_side_marks_are_excused(
    ours: object, theirs: object, value: float | None, excused: int | None
) -> None:
    def marked(x: list[float], mask: object) -> Evidence:
        return tensor_evidence(x=x) if mask is None else tensor_evidence(x=x, ties=mask)

    found = one(marked([1.0, 2.0], theirs), marked([6.0, 2.0], ours), MASKED)
    if value is None:
        assert found.where == "all 2 entries are excused, which leaves nothing to compare"
    else:
        assert (found.value, found.excused) == (value, excused)


def test_a_mask_per_row_excuses_whole_rows() -> None:
    x, moved = np.zeros((2, 3)), np.array([[5.0, 5.0, 5.0], [0.0, 0.0, 0.05]])
    found = one(tensor_evidence(x=x, ties=[True, False]), tensor_evidence(x=moved), MASKED)
    assert (found.value, found.excused, found.ok) == (0.05, 3, True)


finite = st.floats(-1e100, 1e100, allow_subnormal=False)


@given(arrays(np.float64, 7, elements=finite), st.floats(1e-3, 1e3))
def test_the_angle_to_a_multiple_of_itself_is_nothing(vector: np.ndarray, factor: float) -> None:
    found = distance(Comparator.COSINE, vector, vector * factor, None, 0.0)
    # Scaling rounds each entry by half a unit in the last place: the squared chord is of the order of 1e-32.
    assert isinstance(found, Distance) and 0 <= found.value < 1e-30


@pytest.mark.parametrize("size", [1e200, 1e-200])
def test_norms_of_huge_entries_do_not_overflow_and_those_of_tiny_ones_do_not_vanish(size: float) -> None:
    found = distance(Comparator.RELATIVE, np.full(4, size), np.full(4, 1.5 * size), None, 0.0)
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
