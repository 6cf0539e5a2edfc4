"""How long an iteration of evidence takes while nothing keeps it from a core."""

from __future__ import annotations

import pytest
from clocks import FakeClock

from pipelines.trial.machine.usage import Moment, moment
from pipelines.trial.timing.clock import HostClock
from pipelines.trial.timing.iteration_time import Duration


class Crowded(FakeClock):
    """A clock of one thread that waits for its core for `delay_ns` of what passes."""

    delay_ns = 0

    def usage(self) -> Moment:  # type: ignore[override]
        return Moment({1: (self.time_ns, self.delay_ns)}, moment().counts)

    def pass_time(self, wall_ns: int, delay_ns: int = 0) -> None:
        self.advance(wall_ns)
        self.delay_ns += delay_ns


@pytest.mark.parametrize("delay_ns", [0, 9_000_000], ids=["alone", "others have the core nine times as long"])
def test_time_for_which_others_have_the_core_is_no_part_of_an_iteration(delay_ns: int) -> None:
    clock = Crowded(cpu_share=0.0)
    duration = Duration(clock, skipped=1)
    for own_ns in (50_000_000, 1_000_000, 3_000_000):  # the first one warms up
        with duration:
            clock.pass_time(own_ns + delay_ns, delay_ns)
    assert duration.mean_ns == 2_000_000


def test_nothing_is_known_of_iterations_that_all_warm_up() -> None:
    duration = Duration(HostClock(), skipped=1)
    with duration:
        pass
    assert duration.mean_ns is None
