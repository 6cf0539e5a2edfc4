"""What starts a program: whose signals reach whom, and how the use of several processes is one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from perfsweep.workloads.api import NullClock
from perfsweep.workloads.command.launcher import NOTHING, together
from perfsweep.workloads.command.program import RunFailed
from perfsweep.workloads.command.workload import Command

Make = Callable[..., Command]


def test_rusages_are_added_up_but_for_the_largest_memory() -> None:
    one, other = tuple(map(float, range(16))), tuple(map(float, range(16, 0, -1)))
    assert together(one, other) == (16.0, 16.0, 14.0, *[16.0] * 13)
    assert together(NOTHING, one) == one


def test_a_program_that_ends_its_process_group_ends_nobody_else(make: Make) -> None:
    workload = make("sh -c 'kill -KILL 0'")
    for _ in range(2):
        with pytest.raises(RunFailed, match="a run ended with signal SIGKILL instead of 0"):
            workload.step(NullClock())


def test_a_program_is_sent_what_its_cluster_sends_whatever_its_launcher_ignores(make: Make) -> None:
    for name in ("TERM", "USR1", "HUP", "PIPE"):
        with pytest.raises(RunFailed, match=f"a run ended with signal SIG{name} instead of 0"):
            make(f"sh -c 'kill -{name} $$'").step(NullClock())
