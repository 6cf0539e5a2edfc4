"""Where results that a person takes home lie, and of which arms they are still to be had."""

from __future__ import annotations

from pathlib import Path

import pytest
from planned_sweeps import FAST, NAIVE, arm, manifest, progress, record

from perfsweep.pipelines.store.needed_once import arms_without, kept_folder, make_folders
from perfsweep.pipelines.store.records import Keep, Kind, Outcome
from perfsweep.workloads.errors import ConfigError


def planned(folder: Path | None, *arms):
    keep = None if folder is None else Keep(folder=str(folder), iterations=5)
    return manifest(*arms, sweep={"keep": keep})


def test_one_arm_has_the_folder_and_several_have_one_each_in_it(tmp_path: Path) -> None:
    alone = planned(tmp_path, arm(NAIVE, "naive"))
    assert kept_folder(alone, alone.arms[0]) == Keep(folder=str(tmp_path), iterations=5)
    plan = planned(tmp_path, arm(NAIVE, "naive"), arm(FAST, "amp=bf16, a/b: 1+2_3.5"))
    assert kept_folder(plan, plan.arms[1]) == Keep(
        folder=str(tmp_path / "amp=bf16-a-b-1+2_3.5-bbbbbb"), iterations=5
    )


@pytest.mark.parametrize(
    ("records", "there", "retry", "awaited"),
    [
        ([record(FAST, Kind.EVIDENCE)], False, set(), True),
        ([record(FAST, Kind.EVIDENCE, outcome=Outcome.UNSUPPORTED)], False, set(), False),
        ([record(FAST, Kind.RESULT)], True, set(), False),
        ([record(FAST, Kind.RESULT)], False, set(), True),
        ([record(FAST, Kind.RESULT, outcome=Outcome.OOM)], False, set(), False),
        ([record(FAST, Kind.RESULT, outcome=Outcome.OOM)], False, {Outcome.OOM}, True),
    ],
    ids=["it runs", "it cannot run", "kept", "kept elsewhere", "failed", "to retry"],
)
def test_results_are_awaited_of_what_can_run(
    tmp_path: Path, records: list, there: bool, retry: set, awaited: bool
) -> None:
    plan = planned(tmp_path)
    folder = kept_folder(plan, plan.arm(FAST))
    assert folder is not None
    if there:
        Path(folder.folder).mkdir()
        (Path(folder.folder) / "model.pt").touch()
    assert (plan.arm(FAST) in arms_without(plan, progress(*records), retry)) is awaited


def test_a_placebo_has_no_results(tmp_path: Path) -> None:
    plan = planned(tmp_path, arm(NAIVE), arm(FAST, placebo=1))
    assert arms_without(plan, progress()) == [plan.arms[0]]


def test_folders_are_made_before_anything_runs_and_a_full_one_is_refused(tmp_path: Path) -> None:
    plan = planned(tmp_path / "kept")
    make_folders(plan, plan.arms)
    make_folders(plan, plan.arms)
    made = sorted((tmp_path / "kept").iterdir())
    assert [one.name for one in made] == ["amp=bf16-bbbbbb", "naive-aaaaaa"]
    (made[1] / "model.pt").touch()
    with pytest.raises(ConfigError, match="naive-aaaaaa: holds something already; name another folder"):
        make_folders(plan, plan.arms)


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    plan = planned(tmp_path / "file")
    with pytest.raises(ConfigError, match="Not a directory; name a folder that can be written"):
        make_folders(plan, plan.arms)
