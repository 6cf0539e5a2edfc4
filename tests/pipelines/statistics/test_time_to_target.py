"""Steps to a target times the time of a step: one estimate of two that were drawn apart."""

from __future__ import annotations

import math

import pytest

from perfsweep.pipelines.statistics.estimates import Estimate, no_estimate, student_estimate
from perfsweep.pipelines.statistics.paired_steps import PairedSteps, steps_to_target, time_to_target

STEPS = PairedSteps(log_ratio=-0.2, error=0.03, degrees=4.0, seeds=5)
TIMES = student_estimate(0.5, 0.04, degrees=9.0, n=3, rounds=10)


def test_log_ratios_add_up_and_so_do_their_variances() -> None:
    both = time_to_target(STEPS, TIMES)
    assert both is not None
    assert (both.log_ratio, both.error) == (pytest.approx(0.3), pytest.approx(0.05))
    # Satterthwaite: 0.0025^2 / (0.0009^2 / 4 + 0.0016^2 / 9)
    assert both.degrees == pytest.approx(12.83, abs=0.01)
    assert (both.n, both.rounds) == (5, 10)


def test_steps_that_do_other_work_shift_the_ratio_alone() -> None:
    shifted, plain = time_to_target(STEPS, TIMES, 0.1), time_to_target(STEPS, TIMES)
    assert shifted is not None and plain is not None
    assert shifted.log_ratio == pytest.approx(plain.log_ratio + 0.1)
    assert shifted.error == plain.error


def test_times_whose_error_nobody_knows_give_no_time_to_the_target() -> None:
    assert time_to_target(STEPS, no_estimate([0.5])) is None


@pytest.mark.parametrize(("steps", "times", "degrees"), [(4.0, 9.0, 4.0), (9.0, 4.0, 4.0)])
def test_two_ratios_known_exactly_keep_the_fewer_degrees(steps: float, times: float, degrees: float) -> None:
    exact = time_to_target(PairedSteps(0.1, 0.0, steps, 5), student_estimate(0.1, 0.0, times, 3, 10))
    assert exact is not None and exact.degrees == degrees
    assert exact.interval is not None and exact.interval.half_width == 0


def test_the_steps_alone_have_the_interval_of_their_seeds() -> None:
    alone: Estimate = steps_to_target(STEPS)
    assert (alone.log_ratio, alone.error, alone.degrees, alone.n, alone.rounds) == (-0.2, 0.03, 4.0, 5, 5)
    assert alone.interval is not None
    assert alone.interval.half_width == pytest.approx(2.776 * 0.03, rel=1e-3)  # Student's t of four
    assert alone.p is not None and not math.isnan(alone.p)
