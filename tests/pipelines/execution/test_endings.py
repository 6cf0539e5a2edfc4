"""Which trials a disk ended, and which an arm's own mistake did."""

from __future__ import annotations

import errno
import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from measured import prepared
from waiting import until

from perfsweep.pipelines.config.types import DesignConfig
from perfsweep.pipelines.execution import pack
from perfsweep.pipelines.execution.endings import refuse_disk
from perfsweep.pipelines.execution.spawn import termination_of
from perfsweep.pipelines.store.progress_read import read_progress
from perfsweep.pipelines.store.records import Failure, Kind, Manifest, Outcome, SweepFolder, TrialRecord
from perfsweep.pipelines.store.trial_schema import UNWRITTEN


@pytest.fixture
def trial(tmp_path: Path) -> Path:
    folder = tmp_path / "sweep/trials/arm/p000-r0-a0"
    folder.mkdir(parents=True)
    for name in ("spec.json", "record.json"):
        (folder / name).write_text("{}")
    return folder


def record(message: str) -> TrialRecord:
    failure = Failure(type="OSError", message=message)
    own = {"arm": "a", "kind": Kind.TIMING, "pack": "p000", "round": 0, "attempt": 0}
    return TrialRecord(outcome=Outcome.FAILED, failure=failure, **own)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("number", "place", "disk"),
    [
        (errno.ENOSPC, "/elsewhere/file", True),
        (errno.EACCES, "{sweep}/trials/arm", True),
        (errno.EROFS, "", False),
        (errno.EACCES, "/elsewhere/file", False),
    ],
)
def test_a_full_disk_and_a_closed_folder_of_the_sweep_blame_no_arm(
    trial: Path, number: int, place: str, disk: bool
) -> None:
    named = place.format(sweep=trial.parents[2])
    found = record(f"[Errno {number}] {os.strerror(number)}" + (f": '{named}'" if named else ""))
    if not disk:
        refuse_disk(trial, found)
        assert (trial / "record.json").exists()
        return
    with pytest.raises(OSError) as refused:
        refuse_disk(trial, found)
    assert (refused.value.errno, refused.value.filename) == (number, named or str(trial))
    assert not (trial / "record.json").exists()


def test_a_trial_that_could_not_write_blames_no_arm_though_its_disk_has_room_again(trial: Path) -> None:
    (trial / "record.json").unlink()
    refuse_disk(trial, None, termination_of(1, False))
    with pytest.raises(OSError, match="a trial could not write there what came of it") as refused:
        refuse_disk(trial, None, termination_of(UNWRITTEN, False))
    assert refused.value.filename == str(trial)


def test_a_trial_whose_folder_was_moved_away_blames_no_arm(trial: Path) -> None:
    sweep = trial.parents[2]
    sweep.rename(sweep.with_name("moved"))
    with pytest.raises(FileNotFoundError, match="it was moved or deleted, or its disk unmounted") as refused:
        refuse_disk(trial, None)
    assert refused.value.filename == str(sweep)
    assert not sweep.exists(), "what is made there keeps the folder from being moved back"


def test_a_number_of_an_error_elsewhere_in_a_message_means_nothing(trial: Path) -> None:
    refuse_disk(trial, record("mine [Errno 28] it says"))
    assert (trial / "record.json").exists()


SIZE, FILES = 16 * 2**20, 400
BEFORE = 6
"""Records that are there when the disk fills up, of the 12 that the sweep wants."""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk that holds the code of a sweep twice over, and some more files than a sweep has."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SIZE},nr_inodes={FILES}", "tmpfs", str(disk)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip("mounting a small disk is root's")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=False)


def fill(disk: Path, left: int = 0) -> Path:
    """Fill a disk up to its last `left` bytes."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as out:
        for size in (2**16, 1):
            try:
                while True:
                    out.write(bytes(size))
            except OSError as error:
                assert error.errno == errno.ENOSPC
        out.truncate(filler.stat().st_size - left)
    return filler


def fill_with_files(disk: Path, left: int = 0) -> None:
    """Use up all but `left` of what a quota of files leaves; every byte is still free."""
    (disk / "filler").mkdir()
    with suppress(OSError):
        for number in range(FILES):
            (disk / "filler" / str(number)).touch()
    for number in range(left):
        (disk / "filler" / str(number)).unlink()


def records(folder: SweepFolder) -> dict[Path, bytes]:
    return {file: file.read_bytes() for file in folder.path.glob("trials/*/*/record.json")}


def outcomes(folder: SweepFolder) -> set[str]:
    progress = read_progress(folder, folder.read_manifest())
    timed = [one for tries in progress.timing.values() for arms in tries.values() for one in arms.values()]
    return {one.record.outcome.value for one in [*timed, *progress.other.values()]}


@pytest.mark.parametrize("fill_up", [fill, fill_with_files, partial(fill_with_files, left=3)])
def test_a_trial_that_wrote_nothing_on_a_full_disk_is_told_that_it_is_full(
    small_disk: Path, fill_up: Callable[[Path], object]
) -> None:
    folder = small_disk / "sweep/trials/arm/p000-r0-a0"
    folder.mkdir(parents=True)
    (folder / "spec.json").write_text("{}")
    refuse_disk(folder, None, termination_of(1, False))
    fill_up(small_disk)
    with pytest.raises(OSError) as refused:
        refuse_disk(folder, None, termination_of(UNWRITTEN, False))
    assert (refused.value.errno, refused.value.filename) == (errno.ENOSPC, str(folder))


def planned(command: Callable, runs: Path) -> tuple[SweepFolder, Manifest]:
    """A sweep of two arms that is ready to run."""
    design = DesignConfig("one_at_a_time", levels={"work": ["single"]})
    folder, manifest = prepared(command(design, measure={"rounds": 4}, runs=str(runs)))
    return folder, manifest


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk is root's")
def test_a_disk_that_fills_up_costs_no_record_and_blames_no_arm(
    command: Callable, small_disk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """But for a few small files, which is what those that write find hardest to tell from room."""
    folder, manifest = planned(command, small_disk)
    filler = threading.Thread(
        target=lambda: (until(lambda: len(records(folder)) >= BEFORE), fill(small_disk, left=12_288))
    )
    filler.start()
    assert pack.main([str(folder.path), "p000"]) == pack.CANNOT_WRITE
    filler.join()
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(str(small_disk))
    assert "No space left on device; finished rounds are kept: fix this and start the sweep again" in line
    kept = records(folder)
    assert len(kept) >= BEFORE
    assert outcomes(folder) == {"ok"}
    subprocess.run(["rm", "-r", str(small_disk / "filler")], check=True)
    assert pack.main([str(folder.path), "p000"]) == 0
    assert kept.items() <= records(folder).items()
    assert outcomes(folder) == {"ok"}
    assert not read_progress(folder, manifest).unfinished_rounds(manifest.packs[0], frozenset())
    assert not list(folder.path.rglob(".*.tmp"))


@pytest.mark.slow
def test_a_folder_that_is_moved_away_ends_its_pack_and_continues_once_it_is_back(
    command: Callable, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, _ = planned(command, tmp_path / "runs")
    aside = tmp_path / "aside"
    mover = threading.Thread(
        target=lambda: (until(lambda: len(records(folder)) >= BEFORE), folder.path.rename(aside))
    )
    mover.start()
    assert pack.main([str(folder.path), "p000"]) == pack.CANNOT_WRITE
    mover.join()
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(f"{folder.path}: it was moved or deleted, or its disk unmounted, during the sweep")
    kept = records(SweepFolder(aside))
    assert len(kept) >= BEFORE
    subprocess.run(["rm", "-rf", str(folder.path)], check=True)  # what a trial that ran then has left
    aside.rename(folder.path)
    assert outcomes(folder) == {"ok"}
    assert pack.main([str(folder.path), "p000"]) == 0
    assert len(records(folder)) > len(kept)
    assert outcomes(folder) == {"ok"}
