"""A log time for each arm, from rounds of several packs, on tables small enough to work out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from perfsweep.pipelines.search.measurements import LEAST_SD, log_times
from perfsweep.pipelines.statistics.log_ratios import Cell


def cells(pack: str, **times: list[float | None]) -> list[Cell]:
    """Times of arms by round; None where an arm was not measured in one."""
    return [
        Cell(pack, number, None, arm, time)
        for arm, every in times.items()
        for number, time in enumerate(every)
        if time is not None
    ]


def test_a_time_is_the_log_of_its_ratio_to_the_reference_whatever_rounds_do() -> None:
    found = log_times(cells("p000", ref=[1, 2, 4], half=[0.5, 1, 2], double=[2, 4, 8]), "ref")
    assert {arm: time.value for arm, time in found.items()} == pytest.approx(
        {"ref": 0.0, "half": -math.log(2), "double": math.log(2)}, abs=1e-9
    )


def test_arms_of_different_packs_compare_through_what_their_packs_share() -> None:
    found = log_times([*cells("p000", ref=[1, 1], a=[2, 2]), *cells("p001", ref=[5, 5], b=[20, 20])], "ref")
    assert found["b"].value - found["a"].value == pytest.approx(math.log(2))


def test_rounds_of_two_packs_with_one_number_are_two_rounds() -> None:
    both = [*cells("p000", ref=[1.0], a=[2.0]), *cells("p001", ref=[100.0], a=[200.0])]
    found = log_times(both, "ref")
    assert found["a"].value == pytest.approx(math.log(2))
    assert found["a"].variance == pytest.approx(LEAST_SD**2 / 2)


def test_rounds_that_agree_by_luck_are_not_believed_to_the_last_digit() -> None:
    found = log_times(cells("p000", ref=[1, 1, 1, 1], a=[2, 2, None, None]), "ref")
    assert found["ref"].variance == pytest.approx(LEAST_SD**2 / 4)
    assert found["a"].variance == pytest.approx(LEAST_SD**2 / 2)


def test_one_round_leaves_nothing_to_judge_scatter_by() -> None:
    with np.errstate(all="raise"):
        found = log_times(cells("p000", ref=[1.0], a=[2.0]), "ref")
    assert found["a"].variance == pytest.approx(LEAST_SD**2)


def test_the_variance_follows_the_scatter_of_rounds() -> None:
    up, down = math.exp(0.1), math.exp(-0.1)
    found = log_times(cells("p000", ref=[1, 1, 1, 1], a=[up, down, up, down]), "ref")
    # Residuals of 0.05 in eight cells, of which 1 + 4 coefficients were fitted: three are free.
    assert found["a"].value == pytest.approx(0.0, abs=1e-9)
    assert found["a"].variance == pytest.approx(8 * 0.05**2 / 3 / 4)


def test_an_outlying_round_pulls_little() -> None:
    times = [2.0, 2.02, 1.98, 2.01, 1.99, 2.0, 2.0, 20.0]
    found = log_times(cells("p000", ref=[1.0] * 8, other=[3.0] * 8, a=times), "ref")
    plain = math.log(2) + math.log(10) / 8
    assert abs(found["a"].value - math.log(2)) < 0.1 * (plain - math.log(2))


def test_an_arm_that_shares_no_round_has_no_time() -> None:
    found = log_times([*cells("p000", ref=[1, 1], a=[2, 2]), *cells("p001", lonely=[3, 3])], "ref")
    assert set(found) == {"ref", "a"}


def test_arms_have_times_as_far_as_rounds_join_them_to_the_reference_from_arm_to_arm() -> None:
    chain = [*cells("p001", a=[4.0, 4.0], b=[8.0, 8.0]), *cells("p002", ref=[1.0, 1.0], a=[2.0, 2.0])]
    apart = cells("p003", c=[5.0, 5.0], d=[10.0, 10.0])  # where the reference failed in every round
    found = log_times([*chain, *apart], "ref")
    assert {arm: time.value for arm, time in found.items()} == pytest.approx(
        {"ref": 0.0, "a": math.log(2), "b": math.log(4)}, abs=1e-9
    )
    assert log_times(cells("p000", ref=[1, 1]), "ref") == {}, "beside nothing"


def test_without_the_reference_there_are_no_times() -> None:
    assert log_times(cells("p000", a=[1, 1], b=[2, 2]), "ref") == {}
    assert log_times([], "ref") == {}
