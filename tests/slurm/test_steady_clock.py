"""A clock that somebody sets while jobs are submitted and followed makes nobody wait for days."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from stand_ins import calls, executor_on, job, program
from waiting import until

from perfsweep.slurm.observation import SteadyClock
from perfsweep.slurm.site import SiteProfile

DAY_S = 86400.0


class Wall:
    """The time of day as somebody sets it."""

    def __init__(self) -> None:
        self._real, self.off_s = time.time, 0.0

    def __call__(self) -> float:
        return self._real() + self.off_s


@pytest.fixture
def wall(monkeypatch: pytest.MonkeyPatch) -> Wall:
    wall = Wall()
    monkeypatch.setattr(time, "time", wall)
    return wall


@pytest.mark.parametrize("moved_s", [-3 * DAY_S, 3 * DAY_S])
def test_what_sbatch_did_not_take_is_submitted_again_after_the_clock_was_set(
    stand_in: Path, tmp_path: Path, wall: Wall, moved_s: float
) -> None:
    unheard = "echo 'sbatch: error: Unable to contact slurm controller (connect failure)' >&2; exit 1"
    program(stand_in, "sbatch", unheard)
    ex = executor_on(SiteProfile(poll_min_s=0.01, poll_max_s=0.02, fs_delay_s=0.01), tmp_path / "sweep")
    ex.submit([job()])
    until(lambda: ex.poll() and calls(stand_in, "squeue") > 2, "questions about it")
    wall.off_s = moved_s
    program(stand_in, "sbatch", "echo Submitted batch job 57")
    submitted = ex.journal.submissions
    until(lambda: ex.poll() and "57" in [s.array for s in submitted.values()], "another sbatch")
    assert ex.journal.open_names() == {job().name}, "it waits in the queue, and nothing else does"


def test_it_begins_at_the_time_of_day_and_goes_on_steadily(wall: Wall) -> None:
    clock = SteadyClock()
    first = clock()
    assert abs(first - wall()) < 60
    wall.off_s = -DAY_S
    assert first <= clock() < first + 60
