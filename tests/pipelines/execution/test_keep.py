"""What a person takes home: written where asked, by a trial of its own, and never over something else."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfsweep.pipelines import api, cli
from perfsweep.pipelines.config.types import DesignConfig
from perfsweep.pipelines.plan import plan
from perfsweep.pipelines.store.progress_read import read_progress
from perfsweep.pipelines.store.records import Kind
from perfsweep.workloads.api import Device
from perfsweep.workloads.errors import ConfigError

pytestmark = pytest.mark.slow

COUNTDOWN = "toys.jobs:Countdown"
HALF = DesignConfig("one_at_a_time", levels={"skip": ["half"]})
QUICK = ("measure.iterations=2", "measure.warmup_max=5", "measure.threads=1")


def status(words: list[str]) -> object:
    with pytest.raises(SystemExit) as end:
        cli.main(words)
    return end.value.code


@pytest.fixture
def planned(command, tmp_path: Path):
    """Plans the countdown with two arms, keeping in a folder."""

    def make(folder: Path) -> api.Planned:
        options = command(HALF, workload=COUNTDOWN, keep=str(folder), measure={"rounds": 1, "look": True})
        return api.plan(options, "")

    return make


def test_a_sweep_keeps_what_each_arm_computed_in_a_folder_of_its_own(planned, tmp_path: Path) -> None:
    api.measure(planned(tmp_path / "out"))
    found = {folder.name.rpartition("-")[0]: folder for folder in (tmp_path / "out").iterdir()}
    assert sorted(found) == ["baseline", "skip=half"]
    assert (found["baseline"] / "ticks.txt").read_text() == "5\n"
    assert (found["skip=half"] / "ticks.txt").read_text() == "2\n"


def test_the_same_sweep_again_keeps_nothing_and_one_with_another_folder_only_that(
    planned, tmp_path: Path
) -> None:
    first = planned(tmp_path / "out")
    api.measure(first)
    trials = len(read_progress(first.sweep.folder, first.sweep.manifest).every)
    api.measure(planned(tmp_path / "out"))
    assert len(read_progress(first.sweep.folder, first.sweep.manifest).every) == trials
    api.measure(planned(tmp_path / "elsewhere"))
    every = read_progress(first.sweep.folder, first.sweep.manifest).every
    assert [one.record.kind for one in every].count(Kind.RESULT) == 4 and len(every) == trials + 2
    assert len(list((tmp_path / "elsewhere").glob("*/ticks.txt"))) == 2


def test_a_workload_without_results_says_so_when_it_is_planned(command) -> None:
    with pytest.raises(ConfigError, match=r"keep=out: Spinner has nothing to keep"):
        plan.make_plan(
            command(DesignConfig("one_at_a_time", levels={"work": ["single"]}), keep="out"), Device()
        )


def test_run_says_where_results_lie(shell, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders = (f"keep={tmp_path / 'out'}", f"runs={tmp_path / 'runs'}")
    words = ["run", f"workload={COUNTDOWN}", "toggles.pause_ms=1", *folders, *QUICK]
    assert status(words) == 0
    assert f"kept in {tmp_path / 'out'}: 5 ticks" in capsys.readouterr().out
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["ticks.txt"]
    assert status(words) == 2, "nothing is measured either"
    assert "holds something already" in capsys.readouterr().err
