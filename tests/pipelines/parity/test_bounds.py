"""What a deviation may reach: classes and bounds of an arm from those of its levels."""

from __future__ import annotations

from pipelines.parity.comparison import loosest
from workloads.api import Check, Comparator, Level, Parity

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
