"""Variables that a command sees: the user's, then those of levels, then those of its own toggles."""

from __future__ import annotations

from perfsweep.workloads import user_environment
from perfsweep.workloads.command.environment import of_arm
from perfsweep.workloads.custom_toggles import Change
from perfsweep.workloads.declarations import Level


def test_later_ones_stand_in_for_earlier_ones_and_an_empty_one_takes_away() -> None:
    started = {"HOME": "/u", "A": "user", "B": "user", "C": "user"}
    levels = [Level("one", env={"A": "level", "LD_PRELOAD": "lib"}), Level("two", env={"B": "level"})]
    changes = [Change(env={"B": "{seed}-x", "C": "", "D": "d"})]
    assert of_arm(levels, changes, {"seed": "7"}, started) == {
        "HOME": "/u",
        "A": "level",
        "LD_PRELOAD": "lib",
        "B": "7-x",
        "D": "d",
    }


def test_what_measuring_has_added_is_taken_back_first() -> None:
    mine = {"HOME": "/u", "OMP_NUM_THREADS": "3"}
    started = {**mine, **user_environment.changed(mine, {"OMP_NUM_THREADS": "1", "EXTRA": "x"})}
    assert of_arm([], [], {}, started) == mine
