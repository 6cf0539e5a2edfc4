"""Run folders on disk: repeatable, silent, mended when damaged, and never in the way of a sweep."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from recorded import FAST, IDENTITY, NAIVE, TIMED, Built, arrays_of, publish_here, snapshot, timed_rows
from typed import ended

from perfsweep.pipelines.config.tracking import own_environment
from perfsweep.pipelines.publish import run_folders
from perfsweep.pipelines.publish.publishing import publish
from perfsweep.pipelines.publish.runs import SweepRuns
from perfsweep.pipelines.publish.wandb_file import extent
from perfsweep.pipelines.store.files import write_arrays
from perfsweep.pipelines.store.records import Kind, SweepFolder
from perfsweep.workloads.errors import RecordError


def test_records_are_not_touched_and_nothing_but_runs_and_markers_is_left(
    published: Built, sweep: Built
) -> None:
    files = [path.relative_to(sweep.folder.path) for path in sweep.folder.path.rglob("*") if path.is_file()]
    assert len(files) > 10
    for file in files:
        assert (published.folder.path / file).read_bytes() == (sweep.folder.path / file).read_bytes()
    both = [{path.name for path in one.folder.path.iterdir()} for one in (published, sweep)]
    assert both[0] == both[1]
    names = sorted(path.name.split("-")[0] for path in published.folder.wandb_dir.iterdir())
    assert names == [".locks", IDENTITY, IDENTITY, "offline", "offline", "sweep.id"]
    assert not [path for path in published.folder.wandb_dir.rglob("*") if path.is_symlink()]


def test_a_changed_record_replaces_the_run_it_belongs_to_and_no_other(copied: Built) -> None:
    before = snapshot(copied.folder.wandb_dir)
    old = next(copied.folder.wandb_dir.glob(f"offline-run-*-{IDENTITY}-{FAST.id}-p000"))
    (old / f"run-{IDENTITY}-{FAST.id}-p000.wandb.synced").touch()
    path = copied.folder.trial_dir(copied.spec(FAST, 1))
    arrays = {**arrays_of(FAST, 1), "wall_ns": np.full(TIMED, 123_000)}
    write_arrays(path / "iterations.npz", arrays)
    again = "written again; upload it with `perfsweep publish`, not with `wandb sync`"
    assert [run.note for run in publish_here(copied).runs] == ["already complete", again]
    rows = [row["iter/ms"] for row in timed_rows(copied.run_file(FAST)) if row["iter/round"] == 1]
    assert rows == [0.123] * TIMED
    after = snapshot(copied.folder.wandb_dir)
    same = [name for name in before if NAIVE.id in name and not name.startswith(".locks")]
    assert same
    assert {name: after.get(name) for name in same} == {name: before[name] for name in same}


def _cut(path: Path) -> None:
    file = next(path.glob("*.wandb"))
    file.write_bytes(file.read_bytes()[:-100])


def _double(path: Path) -> None:
    shutil.copytree(path, path.with_name(path.name.replace("offline-run-2", "offline-run-3")))


def _tear_marker(path: Path) -> None:
    marker = path.with_name(f"{IDENTITY}-{FAST.id}-p000.json")
    marker.write_bytes(marker.read_bytes()[:40])


@pytest.mark.parametrize("harm", [_cut, _double, _tear_marker])
def test_a_damaged_copy_is_written_again_and_never_twice(copied: Built, harm: Callable[[Path], None]) -> None:
    harm(next(copied.folder.wandb_dir.glob(f"offline-run-*-{IDENTITY}-{FAST.id}-p000")))
    again = publish_here(copied)
    assert again.complete
    assert again.runs[0].note == "already complete"
    assert again.runs[1].note.startswith("written")
    assert len(timed_rows(copied.run_file(FAST))) == 2 * TIMED


def test_a_file_of_an_artifact_that_lies_aside_comes_into_the_runs_folder(tmp_path: Path) -> None:
    aside, run, mine = tmp_path / "aside", tmp_path / "run", tmp_path / "mine"
    for folder in (aside, run):
        folder.mkdir()
    (aside / "a.json").write_text("{}")
    moved = partial(run_folders._taken_along, aside, run, Path("/later"))
    assert [moved(str(aside / "a.json")) for _ in range(2)] == ["/later/artifacts/a.json"] * 2
    assert (run / "artifacts/a.json").read_text() == "{}" and moved(str(mine)) == str(mine)


def test_a_folder_that_cannot_be_written_is_one_warning(sweep: Built) -> None:
    shutil.rmtree(sweep.folder.wandb_dir)
    sweep.folder.wandb_dir.write_text("in the way")
    done = publish(sweep.folder)
    where = sweep.folder.wandb_dir
    what = f"Not a directory in {where}"
    assert (
        done.warning
        == f"nothing was published, the records are untouched: {what}; fix this and publish again"
    )
    assert not done.complete


def test_a_failure_in_the_second_run_keeps_the_first_and_is_mended_later(
    sweep: Built, monkeypatch: pytest.MonkeyPatch
) -> None:
    import wandb

    error = asyncio.CancelledError("the core is gone\nmore")

    def fail_second(original: Callable[..., Any]) -> Callable[..., Any]:
        def init(**given: Any) -> Any:
            if FAST.id in given["settings"].run_id:
                raise error
            return original(**given)

        return init

    with monkeypatch.context() as patch:
        patch.setattr(wandb, "init", fail_second(wandb.init))
        done = publish_here(sweep)
    assert [run.complete for run in done.runs] == [True, False]
    assert done.warning is not None
    assert type(error).__name__ in done.warning
    assert "\n" not in done.warning
    mended = publish_here(sweep)
    assert [run.note for run in mended.runs] == ["already complete", "written"]
    assert mended.complete


def test_a_run_that_the_client_never_finishes_is_incomplete_however_many_rows_it_has(
    sweep: Built, monkeypatch: pytest.MonkeyPatch
) -> None:
    from wandb.sdk.wandb_run import Run

    with monkeypatch.context() as patch:
        patch.setattr(Run, "finish", lambda self, **_: None)
        patch.setattr(run_folders, "extent", lambda file: dataclasses.replace(extent(file), complete=False))
        patch.setattr(run_folders, "SETTLE_S", 0.1)
        done = publish_here(sweep)
    assert not done.complete
    assert done.warning is not None
    assert "did not write" in done.warning
    assert publish_here(sweep).complete


def test_an_interrupt_passes_and_leaves_nothing_half_done(
    sweep: Built, monkeypatch: pytest.MonkeyPatch
) -> None:
    from wandb.sdk.wandb_run import Run

    def interrupt(self: Run, **_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Run, "finish", interrupt)
    monkeypatch.setenv("WANDB_MODE", "online")
    with pytest.raises(KeyboardInterrupt):
        publish_here(sweep)
    assert sorted(path.name for path in sweep.folder.wandb_dir.iterdir()) == [".locks", "sweep.id"]
    assert {name for name in os.environ if name.startswith("WANDB_")} == {"WANDB_MODE"}


def test_a_damaged_file_is_named_and_the_rest_is_published(sweep: Built) -> None:
    file = sweep.folder.trial_dir(sweep.spec(NAIVE, 1)) / "iterations.npz"
    file.write_bytes(file.read_bytes()[:200])
    other = sweep.folder.trial_dir(sweep.spec(FAST, 1)) / "iterations.npz"
    write_arrays(other, {**arrays_of(FAST, 1), "device_ns": np.zeros(2, np.int64)})
    done = publish_here(sweep)
    assert done.warning is not None
    assert str(file) in done.warning
    assert "(and 1 more)" in done.warning
    assert {row["iter/round"] for row in timed_rows(sweep.run_file(NAIVE))} == {0, 2}
    assert {row["iter/round"] for row in timed_rows(sweep.run_file(FAST))} == {0}


def test_a_damaged_record_is_named(sweep: Built) -> None:
    record = sweep.folder.trial_dir(sweep.spec(FAST, None, Kind.COUNTING)) / "record.json"
    record.write_text("{")
    done = publish_here(sweep)
    assert done.warning is not None
    assert done.warning.startswith("some records could not be read")
    assert str(record) in done.warning
    assert "counters/gemm_calls" not in sweep.run_file(FAST).summary


def test_a_folder_without_a_manifest_is_the_users_mistake(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(RecordError):
        publish(SweepFolder(tmp_path))
    assert ended("publish", str(tmp_path)) == 2
    assert "manifest.jsonl" in capsys.readouterr().err


def test_a_run_that_the_caller_has_open_stays_open(sweep: Built, tmp_path: Path) -> None:
    with own_environment(tmp_path):
        import wandb

        mine = wandb.init(settings=wandb.Settings(mode="disabled", root_dir=str(tmp_path)))
        publish_here(sweep)
        assert wandb.run is mine
        mine.finish()
        wandb.teardown()


def test_a_run_that_lies_elsewhere_is_refused_and_ended_as_failed(
    sweep: Built, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    codes: list[int] = []
    place = str(tmp_path / "elsewhere/run-1/files")
    run = SimpleNamespace(dir=place, url="", finish=lambda exit_code: codes.append(exit_code))
    monkeypatch.setattr(run_folders, "_opened", lambda *words, resume: (run, ""))
    content = SweepRuns(sweep.folder, sweep.manifest).content(("p000", FAST.id))
    assert content is not None
    with pytest.raises(RecordError, match=r"^W&B writes to .*elsewhere.* instead of .*staging; check that"):
        run_folders.write_run(tmp_path / "staging", content, "id", mode="offline", segments=())
    assert codes == [1]
