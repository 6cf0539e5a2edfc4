"""A disk that fills up in the middle of a sweep: one sentence, nothing measured is lost, no arm is blamed."""

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
from waiting import until

from perfsweep.pipelines.config.types import DesignConfig
from perfsweep.pipelines.execution import launch, pack
from perfsweep.pipelines.execution.disk import refuse_disk
from perfsweep.pipelines.plan import plan
from perfsweep.pipelines.store.progress_read import read_progress
from perfsweep.pipelines.store.records import Failure, Kind, Outcome, SweepFolder, TrialRecord
from perfsweep.workloads.api import Device

SIZE, FILES = 16 * 2**20, 400
BEFORE = 6
"""Records that are there when the disk fills up, of the 16 that the sweep wants."""


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


def fill_with_files(disk: Path) -> None:
    """Use up what a quota of files leaves; every byte is still free."""
    (disk / "filler").mkdir()
    with suppress(OSError):
        for number in range(FILES):
            (disk / "filler" / str(number)).touch()


def records(folder: SweepFolder) -> dict[Path, bytes]:
    return {file: file.read_bytes() for file in folder.path.glob("trials/*/*/record.json")}


def outcomes(folder: SweepFolder) -> set[str]:
    progress = read_progress(folder, folder.read_manifest())
    timed = [one for tries in progress.timing.values() for arms in tries.values() for one in arms.values()]
    return {one.record.outcome.value for one in [*timed, *progress.other.values()]}


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk is root's")
@pytest.mark.parametrize(
    "fill_up",
    [fill, partial(fill, left=12_288), fill_with_files],
    ids=["to the last byte", "but for a few small files", "to the last file"],
)
def test_a_disk_that_fills_up_costs_no_record_and_blames_no_arm(
    command: Callable, small_disk: Path, capsys: pytest.CaptureFixture[str], fill_up: Callable[[Path], object]
) -> None:
    toy = command(
        DesignConfig("one_at_a_time", levels={"work": ["single"]}),
        measure={"rounds": 6},
        runs=str(small_disk),
    )
    manifest = plan.make_plan(toy, Device())
    folder = SweepFolder(small_disk / manifest.sweep.name)
    launch.prepare(folder, manifest, "")
    filler = threading.Thread(
        target=lambda: (until(lambda: len(records(folder)) >= BEFORE), fill_up(small_disk))
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


def failed(message: str) -> TrialRecord:
    failure = Failure(type="OSError", message=message)
    own = {"pack": "p000", "round": 0, "attempt": 0}
    return TrialRecord(arm="a", kind=Kind.TIMING, outcome=Outcome.FAILED, failure=failure, **own)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_trial_that_found_its_disk_full_is_no_failure_of_its_arm(tmp_path: Path, number: int) -> None:
    (tmp_path / "record.json").touch()
    with pytest.raises(OSError, match=os.strerror(number)) as raised:
        refuse_disk(tmp_path, failed(f"[Errno {number}] {os.strerror(number)}: '/scratch/state.pt'"))
    assert raised.value.filename == "/scratch/state.pt"
    assert not (tmp_path / "record.json").exists()  # or the arm would never be tried again


def test_a_trial_that_may_not_write_into_its_sweep_is_no_failure_of_its_arm(tmp_path: Path) -> None:
    trial = tmp_path / "trials/arm/p000-r000-a0"
    trial.mkdir(parents=True)
    (trial / "record.json").touch()
    with pytest.raises(PermissionError) as raised:
        refuse_disk(trial, failed(f"[Errno 13] Permission denied: '{tmp_path / 'cache'}'"))
    assert raised.value.filename == str(tmp_path / "cache")
    assert not (trial / "record.json").exists()


@pytest.mark.parametrize(
    "message",
    [
        "[Errno 2] No such file or directory: 'data.npz'",
        "no space left, I say",
        "[Errno 13] Permission denied: '/their/data.npz'",
    ],
)
def test_any_other_failure_stays_the_arm_s_own(tmp_path: Path, message: str) -> None:
    trial = tmp_path / "trials/arm/p000-r000-a0"
    trial.mkdir(parents=True)
    (trial / "record.json").touch()
    refuse_disk(trial, failed(message))
    refuse_disk(trial, None)  # nor is a process that died on a disk with room
    assert (trial / "record.json").exists()


@pytest.mark.slow
def test_its_pack_ends_and_the_next_one_tries_the_arm_again(
    command: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    toy = command(DesignConfig("one_at_a_time", levels={"work": ["single"]}), measure={"rounds": 1})
    manifest = plan.make_plan(toy, Device())
    folder = SweepFolder(tmp_path / manifest.sweep.name)
    launch.prepare(folder, manifest, "")
    with monkeypatch.context() as patch:
        patch.setattr(
            pack, "record_of", lambda place: failed("[Errno 28] No space left on device: '/scratch/x'")
        )
        assert pack.main([str(folder.path), "p000"]) == pack.CANNOT_WRITE
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("/scratch/x: No space left on device; finished rounds are kept")
    assert records(folder) == {}
    assert pack.main([str(folder.path), "p000"]) == 0
    assert outcomes(folder) == {"ok"}
