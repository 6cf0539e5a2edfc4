"""What a deviation may reach: classes and bounds of an arm from those of its levels."""

from __future__ import annotations

import pytest

from perfsweep.pipelines.parity.bounds import number_bound, stated_bound
from perfsweep.pipelines.parity.deviations import loosest
from perfsweep.workloads.api import Check, Comparator, Level, Parity

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
