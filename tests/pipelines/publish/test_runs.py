"""Which runs a sweep has: arms with finished rounds, profiles, the comparison; and their identity."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from recorded import FAST, NAIVE, PACK, Built, build

from perfsweep.pipelines.publish.runs import COMPARE, PROFILE, SweepRuns, identity
from perfsweep.pipelines.store.profiles import Profile, arm_folder, write_profile
from perfsweep.pipelines.store.records import Outcome, Pack, SweepFolder
from perfsweep.workloads.errors import ConfigError

SECOND = Pack(id="p001", orders=((NAIVE.id, FAST.id),), start="fork")


@pytest.fixture
def built(tmp_path: Path) -> Built:
    return build(tmp_path / "sweep", packs=(PACK, SECOND))


def runs(built: Built) -> SweepRuns:
    return SweepRuns(built.folder, built.manifest)


BOTH = [("p000", NAIVE.id), ("p000", FAST.id)]


def profiled(built: Built, tool: str = "cpu", **changes: object) -> Path:
    own = {
        "tool": tool,
        "workload": "toys.spinner:Spinner",
        "unit": "step",
        "arm": FAST,
        "slice": "region",
        "iterations": 3,
        "units": 3.0,
        "bare_ns": (100.0, 100.0),
    }
    folder = arm_folder(built.folder, FAST) / tool
    folder.mkdir(parents=True)
    write_profile(folder, Profile(**own | changes))  # type: ignore[arg-type]
    return folder


def compared(built: Built) -> None:
    built.folder.tables_dir.mkdir(parents=True, exist_ok=True)
    (built.folder.tables_dir / "effects.parquet").touch()


def test_runs_are_those_of_arms_with_finished_rounds(built: Built) -> None:
    assert runs(built).keys() == BOTH, "nothing of the second pack is finished"
    built.add(built.spec(NAIVE, 0, pack="p001"), None)
    assert runs(built).keys() == BOTH, "one arm of the round is missing"
    built.add(built.spec(FAST, 0, pack="p001"), None)
    assert runs(built).keys() == [*BOTH, ("p001", NAIVE.id), ("p001", FAST.id)]


def test_the_comparison_and_profiles_come_last_and_only_where_the_whole_sweep_is_asked_for(
    built: Built,
) -> None:
    compared(built)
    profiled(built)
    assert runs(built).keys() == [*BOTH, (PROFILE, FAST.id), (COMPARE, "")]
    assert runs(built).keys(["p000", "p000"]) == BOTH
    assert runs(built).keys(["p001"]) == []


def test_a_pack_of_another_sweep_is_refused_with_the_choices(built: Built) -> None:
    with pytest.raises(ConfigError, match="pack p009 is not of sweep demo; choose from: p000, p001"):
        runs(built).keys(["p000", "p009"])


def test_the_comparison_holds_the_series_of_the_rounds_that_ended_well(built: Built) -> None:
    (built.folder.trial_dir(built.spec(NAIVE, 1)) / "iterations.npz").unlink()
    from perfsweep.pipelines.api import Sweep

    assert Sweep(built.folder, built.manifest).comparison
    content = runs(built).content((COMPARE, ""))
    assert content and [name for name, _ in content.bundled] == [
        *(f"{NAIVE.id}/p000-round{number:03d}.npz" for number in (0, 2)),
        *(f"{FAST.id}/p000-round{number:03d}.npz" for number in (0, 1)),
    ]


def test_of_several_attempts_at_a_round_one_is_published(built: Built) -> None:
    for arm in (NAIVE, FAST):
        built.add(built.spec(arm, 0, attempt=1), None, outcome=Outcome.OOM)
    content = runs(built).content(("p000", NAIVE.id))
    assert content and content.summary["bench/rounds"] == 3, "the attempt that ended well"


def test_of_rounds_that_all_failed_nothing_is_told_that_was_not_measured(built: Built) -> None:
    for arm in (NAIVE, FAST):
        built.add(built.spec(arm, 0, pack="p001"), None, outcome=Outcome.OOM)
    content = runs(built).content(("p001", FAST.id))
    assert content and content.summary["outcome"] == "oom"
    assert not [name for name in content.summary if "peak_mem" in name or "median" in name]


@pytest.mark.parametrize("damage", ["", "5eed00\n5eed00\n5eed"])
def test_what_tells_a_sweep_from_its_namesakes_is_drawn_once_and_outlives_damage(
    tmp_path: Path, damage: str
) -> None:
    folder = SweepFolder(tmp_path)
    file, first = folder.wandb_dir / "sweep.id", identity(folder)
    assert re.fullmatch(r"[0-9a-f]{6}", first) and identity(folder) == first
    file.write_text(damage)
    assert identity(folder) == file.read_text() != damage, "nothing was published: another one is drawn"
    (folder.wandb_dir / ".locks").mkdir(parents=True)
    (folder.wandb_dir / ".locks" / "5eed00-0123456789abcdef-p000").touch()
    file.write_text(damage)
    assert identity(folder) == file.read_text() == "5eed00", "that of what was published"
