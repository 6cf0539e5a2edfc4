"""What `perfsweep profile` says of profiles that there are and of those that there are not."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from planned_sweeps import FAST, NAIVE, arm, effect, manifest
from rich.console import Console

from perfsweep.pipelines.commands import profile as module
from perfsweep.pipelines.config import composition, validation
from perfsweep.pipelines.profiling.profile_trials import Ended
from perfsweep.pipelines.store.options import ProfileConfig
from perfsweep.pipelines.store.profiles import Kept, Profile, arm_folder, write_profile
from perfsweep.pipelines.store.records import Failure, Outcome, SweepFolder
from perfsweep.workloads.errors import ConfigError

RAISED = Failure(type="ValueError", message="no such shape")


def ended(outcome: Outcome, failure: Failure | None, **options: Any) -> Ended:
    return Ended(ProfileConfig(tool="torch", **options), Path("here"), None, failure, outcome)


@pytest.mark.parametrize(
    ("one", "says"),
    [
        (ended(Outcome.FAILED, RAISED), "torch: failed: ValueError: no such shape; log: here/log.txt"),
        (ended(Outcome.OOM, RAISED), "torch: oom: ValueError: no such shape; log: here/log.txt"),
        (ended(Outcome.UNSUPPORTED, RAISED), "torch: unsupported: no such shape; log: here/log.txt"),
        (ended(Outcome.TIMEOUT, RAISED), "torch: timeout: no such shape; log: here/log.txt"),
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


def test_what_is_whole_is_shown_and_a_failure_is_status_1(monkeypatch: pytest.MonkeyPatch) -> None:
    out, shown = StringIO(), list[Any]()
    monkeypatch.setattr(module.memory_chart, "write_picture", lambda kept: shown.append("picture"))
    monkeypatch.setattr(module.profile_tables, "show", lambda console, kept, top: shown.append(top))
    kept = Ended(ProfileConfig(), Path(), Kept(Path(), profile(FAST)))

    class Runs:
        def run(self, asked: Any) -> Any:
            return iter(asked)

    def each(*asked: Ended) -> int:
        return module._each(Console(file=out, width=20), Runs(), asked, 7)  # type: ignore[arg-type]

    assert each(kept, kept) == 0 and shown == ["picture", 7] * 2
    assert each(ended(Outcome.FAILED, RAISED), kept) == 1
    assert out.getvalue() == "\ntorch: failed: ValueError: no such shape; log: here/log.txt\n"
    assert len(shown) == 6, "what comes after a failure is profiled all the same"


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
        (["workload=digits", "runs/a"], "x", "workload=digits: the sweep has settled that"),
        (["profile.tool=torch"], "x", "--arm needs the folder of the sweep"),
    ],
)
def test_beside_a_folder_only_the_profile_is_said(overrides: list, arm_: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        module.profile_folder(overrides, arm_, None, None)


def test_two_arms_of_a_sweep_or_two_folders_are_compared(
    sweep: SweepFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept(sweep, NAIVE, FAST)
    shown = list[Any]()

    def pairs(before: Any, after: Any, tool: str | None) -> Any:
        shown.append([one[0].profile.arm.id if isinstance(one, list) else one for one in (before, after)])
        return [("b", "a")] if tool else []

    monkeypatch.setattr(module.profile_diff, "pairs", pairs)
    monkeypatch.setattr(module.profile_diff, "profiles_at", lambda name: f"at {name}")
    monkeypatch.setattr(module.profile_diff, "show", lambda console, before, after, top: shown.append(top))
    names = ("arm a", "arm b")
    assert module.profile_folder([str(sweep.path)], None, names, "torch") == 0
    assert module.profile_folder([], None, names, None) == 0
    assert shown == [[NAIVE, FAST], 20, ["at arm a", "at arm b"]]


def test_an_arm_must_be_named_of_those_that_there_are(sweep: SweepFolder) -> None:
    with pytest.raises(ConfigError, match=r"say which arm of toy to profile: naive, arm a, arm b$"):
        module.profile_arm(str(sweep.path), None, ProfileConfig())


@pytest.mark.parametrize(
    ("status", "report", "linked"), [(0, True, True), (1, True, True), (130, True, False), (0, False, False)]
)
def test_a_report_that_is_there_links_the_profile(
    sweep: SweepFolder,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    status: int,
    report: bool,
    linked: bool,
) -> None:
    if report:
        sweep.report_file.touch()
    asked, made = list[Any](), list[Any]()

    class Reported:
        def __init__(self, folder: Any, plan: Any) -> None:
            self.folder = folder

        def report(self) -> None:
            made.append(self.folder.path)

    def profiled(folder: Any, plan: Any, one: Any, options: Any, prepare: Any) -> int:
        asked.append((one.id, options.tool))
        return status

    monkeypatch.setattr(module, "_profiled", profiled)
    monkeypatch.setattr(module.api, "Sweep", Reported)
    assert module.profile_arm(str(sweep.path), "mine", ProfileConfig(tool="memory")) == status
    assert asked == [(FAST, "memory")]
    assert made == [sweep.path] * linked
    assert ("report.html links these profiles" in capsys.readouterr().out) is linked


class Profiled:
    """Stands in for what makes profiles."""

    def __init__(self, folder: Any, manifest: Any, arm: Any) -> None:
        self.changed = True
        assert (folder.path / "manifest.jsonl").exists(), "it is prepared first"

    def run(self, asked: Any) -> Any:
        yield ended(Outcome.FAILED, RAISED)
        raise KeyboardInterrupt


def test_an_arm_that_is_spelled_out_is_profiled_in_a_folder_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    validation.register()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(module, "Profiling", Profiled)
    monkeypatch.setattr(
        module.launch, "prepare", lambda folder, manifest, text: folder.write_manifest(manifest)
    )
    monkeypatch.setattr(module, "wanted", lambda options: ([options], [Refused(options.tool)]))
    words = ["workload=toys.spinner:Spinner", "toggles.work=single", "profile.tool=memory", "runs=mine"]
    assert module.profile(composition.compose("profile", words)) == 130
    (folder,) = (tmp_path / "mine").iterdir()
    place = str(folder.relative_to(tmp_path) / "profiles")
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "no memory here"
    assert (
        said[1].startswith("profiling work=single of toys.spinner:Spinner; profiles: ") and place in said[1]
    )
    assert module.CHANGED in " ".join(map(str.strip, said)) and any("torch: failed" in line for line in said)
    assert said[-1].startswith("interrupted; profiles that were whole are kept in ") and place in said[-1]


class Refused:
    def __init__(self, tool: str) -> None:
        self.reason = f"no {tool} here"
