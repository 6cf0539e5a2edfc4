"""What a person takes home: written where asked, by a trial of its own, and never over something else."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfsweep.pipelines import api
from perfsweep.pipelines.config.types import DesignConfig
from perfsweep.pipelines.store.progress_read import read_progress
from perfsweep.pipelines.store.records import Kind

pytestmark = pytest.mark.slow

COUNTDOWN = "toys.jobs:Countdown"
HALF = DesignConfig("one_at_a_time", levels={"skip": ["half"]})


@pytest.fixture
def planned(command, tmp_path: Path):
    """Plans the countdown with two arms, keeping in a folder."""

    def make(folder: Path) -> api.Planned:
        options = command(HALF, workload=COUNTDOWN, keep=str(folder), measure={"rounds": 1, "look": True})
        return api.plan(options, "")

    return make


def test_a_sweep_keeps_what_each_arm_computed_once_in_each_folder_that_it_is_asked_for(
    planned, tmp_path: Path
) -> None:
    first = planned(tmp_path / "out")
    api.measure(first)
    found = {folder.name.rpartition("-")[0]: folder for folder in (tmp_path / "out").iterdir()}
    ticks = {name: (folder / "ticks.txt").read_text() for name, folder in found.items()}
    assert ticks == {"baseline": "5\n", "skip=half": "2\n"}
    trials = len(read_progress(first.sweep.folder, first.sweep.manifest).every)
    api.measure(planned(tmp_path / "out"))
    assert len(read_progress(first.sweep.folder, first.sweep.manifest).every) == trials
    api.measure(planned(tmp_path / "elsewhere"))
    every = read_progress(first.sweep.folder, first.sweep.manifest).every
    assert [one.record.kind for one in every].count(Kind.RESULT) == 4 and len(every) == trials + 2
    assert len(list((tmp_path / "elsewhere").glob("*/ticks.txt"))) == 2
