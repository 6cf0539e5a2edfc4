"""What `perfsweep profile` says of profiles that there are and of those that there are not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from measured import simulated
from planned_sweeps import FAST, NAIVE, arm, effect, manifest

from perfsweep.pipelines.commands import profile as module
from perfsweep.pipelines.config.types import DesignConfig
from perfsweep.pipelines.exits import DONE, INTERRUPTED
from perfsweep.pipelines.profiling.profile_trials import Ended
from perfsweep.pipelines.store.options import ProfileConfig
from perfsweep.pipelines.store.profiles import Profile, arm_folder, write_profile
from perfsweep.pipelines.store.records import Failure, Outcome, SweepFolder
from perfsweep.workloads.errors import ConfigError

RAISED = Failure(type="ValueError", message="no such shape")


def ended(outcome: Outcome, failure: Failure | None, **options: Any) -> Ended:
    return Ended(ProfileConfig(tool="torch", **options), Path("here"), None, failure, outcome)


@pytest.mark.parametrize(
    ("one", "says"),
    [
        (ended(Outcome.UNSUPPORTED, RAISED), "torch: unsupported: no such shape; log: here/log.txt"),
        (ended(Outcome.FAILED, None), "torch: failed: no reason was left; log: here/log.txt"),
        (
            ended(Outcome.FAILED, RAISED, hook="off"),
            "torch, hook off: failed: ValueError: no such shape; log: here/log.txt",
        ),
    ],
)
def test_a_profile_that_there_is_none_of_has_its_reason_and_its_log(one: Ended, says: str) -> None:
    assert module._why(one) == says


def profile(of: str, **own: Any) -> Profile:
    given = {"tool": "torch", "workload": "toys", "unit": "rows", "slice": "3:5", "iterations": 4}
    return Profile(**{**given, "units": 8.0, "bare_ns": (1e6,), "arm": arm(of, f"arm {of[0]}"), **own})


@pytest.fixture
def sweep(tmp_path: Path) -> SweepFolder:
    folder = SweepFolder(tmp_path / "demo")
    named = effect((FAST, NAIVE), design="arms").model_copy(update={"toggle": "mine"})
    folder.write_manifest(manifest(arm(NAIVE, "arm a"), arm(FAST, "arm b"), effects=(named,)))
    return folder


def kept(sweep: SweepFolder, *arms: str) -> None:
    for one in arms:
        place = arm_folder(sweep, arm(one, f"arm {one[0]}")) / "torch"
        place.mkdir(parents=True)
        write_profile(place, profile(one))


@pytest.mark.parametrize("name", ["arm b", FAST, "mine", FAST[:6]])
def test_profiles_of_an_arm_are_found_by_whatever_it_is_called(sweep: SweepFolder, name: str) -> None:
    kept(sweep, NAIVE, FAST)
    assert [one.profile.arm.id for one in module._of_arm(str(sweep.path), name)] == [FAST]


def test_profiles_that_are_not_there_are_to_be_made(sweep: SweepFolder, tmp_path: Path) -> None:
    path = str(sweep.path)
    with pytest.raises(
        ConfigError, match=rf"{path} has no profiles yet; make one with `perfsweep profile {path}"
    ):
        module._of_arm(path, "arm b")
    kept(sweep, NAIVE)
    with pytest.raises(ConfigError, match=r"arm arm b has no profile yet; make one with .*--arm 'arm b'`"):
        module._of_arm(path, "arm b")
    with pytest.raises(ConfigError, match="--arm nobody is no arm of toy"):
        module._of_arm(path, "nobody")
    with pytest.raises(ConfigError, match="is no folder of a sweep"):
        module._of_arm(str(tmp_path / "nowhere"), "arm b")


@pytest.mark.parametrize(
    ("overrides", "arm_", "says"),
    [
        (
            ["runs/a", "runs/b"],
            "x",
            "runs/b: the sweep has settled that; with the folder of a sweep give profile",
        ),
        (["runs/a", "toggles.amp=on"], "x", "toggles.amp=on: the sweep has settled that"),
    ],
)
def test_beside_a_folder_only_the_profile_is_said(overrides: list, arm_: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        module.profile_folder(overrides, arm_, None, None)


@pytest.mark.parametrize("breaks", [False, True])
def test_a_report_links_profiles_that_are_whole_and_ctrl_c_says_where_they_are(
    breaks: bool, command: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep = command(DesignConfig("one_at_a_time", levels={"work": ["single"]}))
    folder, manifest_ = simulated(sweep, lambda levels: 1.0)
    folder.report_file.write_text("of before")

    def profiled(*_: Any) -> int:
        place = arm_folder(folder, manifest_.arms[0]) / "torch"
        place.mkdir(parents=True)
        write_profile(place, profile(NAIVE, arm=manifest_.arms[0]))
        if breaks:
            raise KeyboardInterrupt
        return DONE

    monkeypatch.setattr(module, "_each", profiled)
    status = module.profile_arm(str(folder.path), "naive", ProfileConfig())
    assert status == (INTERRUPTED if breaks else DONE)
    place = arm_folder(folder, manifest_.arms[0])
    said = [f"profiling baseline of toys.spinner:Spinner; profiles: {place}"]
    kept = ["", f"interrupted; profiles that were whole are kept in {place}"]
    said += kept if breaks else [f"report: {folder.report_file} links these profiles"]
    assert capsys.readouterr().out.splitlines() == said
    assert ("torch, 3:5" in folder.report_file.read_text()) is not breaks


def test_an_arm_must_be_named_of_those_that_there_are(sweep: SweepFolder) -> None:
    with pytest.raises(ConfigError, match=r"say which arm of toy to profile: naive, arm a, arm b$"):
        module.profile_arm(str(sweep.path), None, ProfileConfig())
