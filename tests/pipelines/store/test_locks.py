"""One command measures a sweep, the first writer of a result wins, and what killed writers leave goes."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from perfsweep.pipelines import locks
from perfsweep.pipelines.locks import holding, own_folder
from perfsweep.pipelines.store import records, writers
from perfsweep.pipelines.store.files import write_once
from perfsweep.pipelines.store.records import SweepFolder
from perfsweep.pipelines.store.writers import Taken, locked
from perfsweep.slurm import element
from perfsweep.workloads.errors import ConfigError


def refuse(number: int):
    def call(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    return call


@pytest.fixture(params=[errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK], ids=errno.errorcode.get)
def no_locks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lustre without locks: each of its versions says so in its own way."""
    monkeypatch.setattr(fcntl, "flock", refuse(request.param))


@pytest.fixture(params=[errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS], ids=errno.errorcode.get)
def no_links(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "link", refuse(request.param))


@pytest.mark.usefixtures("no_locks")
def test_without_locks_a_second_command_is_refused_and_told_whom_to_wait_for(tmp_path: Path) -> None:
    folder = SweepFolder(tmp_path / "toy")
    with locked(folder):
        with pytest.raises(ConfigError) as refused, locked(folder):
            pass
        text = str(refused.value)
        assert "is being measured by another command; wait for it, or give this one a name=" in text
        assert f"process {os.getpid()} on " in text
        assert f"where it has died, delete {folder.path / '.lock.owner'}" in text
    with locked(folder):
        pass
    assert not (folder.path / ".lock.owner").exists()


def test_who_holds_a_sweep_is_told_and_how_it_goes_on_where_it_is_stopped(tmp_path: Path) -> None:
    folder = SweepFolder(tmp_path / "toy")
    if not (child := os.fork()):
        with locked(folder):
            os.kill(os.getpid(), signal.SIGSTOP)
        os._exit(0)
    try:
        assert os.WIFSTOPPED(os.waitpid(child, os.WUNTRACED)[1])
        who = rf"name= \(process {child} on .*, which is stopped: `kill -CONT {child}` lets it go on\)$"
        with pytest.raises(Taken, match=who), locked(folder):
            pass
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    with locked(folder):  # which a killed process has let go
        pass


@pytest.mark.usefixtures("no_locks")
def test_without_locks_a_command_that_died_here_is_no_owner_and_one_elsewhere_may_be(tmp_path: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    owner = {"host": os.uname().nodename, "pid": dead.pid, "started": "1"}
    (tmp_path / ".lock.owner").write_text(json.dumps(owner))
    with holding(tmp_path / ".lock") as other:
        assert other == ""
    (tmp_path / ".lock.owner").write_text(json.dumps({**owner, "host": "elsewhere"}))
    with holding(tmp_path / ".lock") as other:
        assert f"process {dead.pid} on elsewhere" in other
    assert (tmp_path / ".lock.owner").exists(), "it is not ours to delete"


def test_a_lock_that_fails_for_another_reason_is_no_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fcntl, "flock", refuse(errno.EIO))
    with pytest.raises(OSError, match="Input/output"), holding(tmp_path / ".lock"):
        pass


@pytest.mark.usefixtures("no_links")
def test_without_hard_links_one_of_many_writers_wins_and_is_read_whole(tmp_path: Path) -> None:
    texts = [str(number).encode() * 5000 for number in range(8)]
    won: list[bytes] = []

    def write(text: bytes) -> None:
        if write_once(tmp_path / "record.json", text):
            won.append(text)

    writers = [threading.Thread(target=write, args=(text,)) for text in texts]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert won == [(tmp_path / "record.json").read_bytes()]


@pytest.mark.usefixtures("no_links")
def test_an_element_says_how_it_ended_without_hard_links_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = tmp_path / "abc.json"
    jobs.write_text(json.dumps({"jobs": [{}], "code": "", "heartbeat_s": 1}))
    (tmp_path / "abc").mkdir()
    one = element.Element(jobs, 0)
    one._write("end", {"status": 0, "signals": []})
    one._write("end", {"status": 9, "signals": []})
    assert json.loads((tmp_path / "abc" / "0.end-0.json").read_text())["status"] == 0


@pytest.fixture(scope="module")
def dead() -> int:
    """The number of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-S", "-c", ""])
    process.wait()
    return process.pid


@pytest.fixture
def folder(tmp_path: Path) -> SweepFolder:
    found = SweepFolder(tmp_path / "sweep")
    (found.path / "trials/a/p000-r000-a0").mkdir(parents=True)
    (found.path / "trials/a/p000-r000-a0/record.json").touch()
    return found


def made(folder: SweepFolder, name: str) -> Path:
    file = folder.path / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()
    return file


@pytest.mark.parametrize(
    "name",
    [
        "trials/a/p000-r000-a0/.iterations.npz.{pid}.0badc0de.tmp",
        "packs/p000/attempts/.0.json.{pid}.0badc0de.tmp",
        ".manifest.jsonl.{pid}.0badc0de.tmp",
        "code/.0123456789ab.{pid}/conf/run.yaml",
    ],
)
def test_what_a_dead_writer_left_goes_and_what_a_live_one_writes_stays(
    folder: SweepFolder, dead: int, name: str
) -> None:
    gone, kept = (made(folder, name.format(pid=pid)) for pid in (dead, os.getpid()))
    writers.remove_leftovers(folder)
    assert kept.exists() and not gone.exists()
    assert (folder.path / "trials/a/p000-r000-a0/record.json").exists()


def test_what_elements_of_an_array_left_goes(folder: SweepFolder) -> None:
    names = ("submissions/abc/.0.end-0.json.0badc0de.tmp", "submissions/12_submitted.pkl.save_tmp")
    gone, kept = [made(folder, name) for name in names], made(folder, "submissions/abc/0.end-0.json")
    writers.remove_leftovers(folder)
    assert kept.exists() and not any(file.exists() for file in gone)


@pytest.mark.parametrize(("alive", "stays"), [(True, True), (False, False)])
def test_scratch_of_a_trial_goes_with_its_process(
    folder: SweepFolder, dead: int, alive: bool, stays: bool
) -> None:
    trial = folder.path / "trials/a/p000-r000-a0"
    made(folder, "trials/a/p000-r000-a0/scratch/rank0/large")
    (trial / "status.json").write_text(json.dumps({"stage": "timing", "pid": os.getpid() if alive else dead}))
    writers.remove_leftovers(folder)
    assert (trial / "scratch").exists() is stays


def test_scratch_on_a_disk_of_a_node_goes_as_a_link_and_nothing_behind_it(
    folder: SweepFolder, tmp_path: Path
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    (folder.path / "trials/a/p000-r000-a0/scratch").symlink_to(disk)
    writers.remove_leftovers(folder)
    assert disk.exists() and not (folder.path / "trials/a/p000-r000-a0/scratch").is_symlink()


OWN = ".own-"
HOLD = """
import sys, time
from contextlib import AbstractContextManager
from pathlib import Path
from perfsweep.pipelines.locks import own_folder
with own_folder(Path(sys.argv[1]), sys.argv[2]) as own:
    print(own, flush=True)
    time.sleep(600)
"""


def test_the_folder_of_a_killed_process_is_cleared_away_and_that_of_a_living_one_is_not(
    tmp_path: Path,
) -> None:
    processes = [
        subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path), OWN], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    try:
        dead, living = (Path(process.stdout.readline().strip()) for process in processes if process.stdout)
        processes[0].send_signal(signal.SIGKILL)
        processes[0].wait()
        assert dead.exists()
        with own_folder(tmp_path, OWN) as mine:
            assert not dead.exists()
            assert living.exists()
            assert mine.exists()
        assert not mine.exists()
    finally:
        for process in processes:
            process.kill()
            process.wait()


@pytest.mark.parametrize("files", [(), ("alive", "run.log")], ids=str)
def test_the_folder_of_a_process_that_was_killed_while_it_began_is_cleared_away(
    files: tuple[str, ...], tmp_path: Path
) -> None:
    left = tmp_path / f"{OWN}left"
    left.mkdir()
    for name in files:
        (left / name).touch()
    with own_folder(tmp_path, OWN) as mine:
        assert [*tmp_path.iterdir()] == [mine]


def test_a_process_whose_folder_was_cleared_away_before_it_had_the_lock_makes_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Path] = []

    def late(file: Path) -> AbstractContextManager[str]:
        seen.append(file.parent)
        if len(seen) == 1:
            with own_folder(tmp_path, OWN):  # another process, which finds no one there
                assert not file.parent.exists()
        return holding(file)

    with monkeypatch.context() as patched:
        patched.setattr(locks, "holding", lambda file: late(file) if not seen else holding(file))
        with own_folder(tmp_path, OWN) as mine:
            assert mine.exists() and mine != seen[0]
            assert [*tmp_path.iterdir()] == [mine]


READ = """
import time
from perfsweep.pipelines.locks import folder_to_read_in
print(folder_to_read_in(), flush=True)
time.sleep(600)
"""


def test_what_a_killed_command_read_aside_goes_when_the_next_one_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    words, there = [sys.executable, "-c", READ], {**os.environ, "TMPDIR": str(tmp_path)}
    started = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=there) for _ in range(2)]
    try:
        dead, living = (Path(process.stdout.readline().strip()) for process in started if process.stdout)
        (dead / "report.html").touch()
        started[0].send_signal(signal.SIGKILL)
        started[0].wait()
        records.readable(SweepFolder(tmp_path))
        assert [*tmp_path.iterdir()] == [living]
    finally:
        for process in started:
            process.kill()
            process.wait()
