"""The code that jobs import: one archive, left alone once there, and unpacked on the disk of each node."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest

from perfsweep.pipelines.store import code_snapshot
from perfsweep.pipelines.store.code_snapshot import take
from perfsweep.workloads.snapshot import Snapshot

IMPORTED_FROM = "import sys, perfsweep.pipelines.store.files; print(perfsweep.pipelines.store.files.__file__)"


def imported(archive: Path, disk: Path, program: str = IMPORTED_FROM) -> subprocess.CompletedProcess[str]:
    """Run a program that imports the archive on a node whose own disk is `disk`."""
    disk.mkdir(exist_ok=True)
    env = {"PATH": os.environ["PATH"], "TMPDIR": str(disk), "PYTHONPATH": str(archive), "PYTHONSAFEPATH": "1"}
    env["PYTHONDONTWRITEBYTECODE"] = os.environ.get("PYTHONDONTWRITEBYTECODE", "")
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, env=env
    )


def own(disk: Path) -> Path:
    """The folder of this user on a node's disk."""
    return disk / f"perfsweep-code-{os.getuid()}"


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An archive of a package of three files, of which one is below a link, as in a checkout."""
    source, linked = tmp_path / "checkout/perfsweep", tmp_path / "slurm"
    for file, text in {
        source / "__init__.py": (Path(code_snapshot.OURS) / "perfsweep/__init__.py").read_text(),
        source / "unpacked.py": (Path(code_snapshot.OURS) / "perfsweep/unpacked.py").read_text(),
        source / "marks.py": "mark = steps = 1\n",
        linked / "element.py": "answer = 42\n",
        linked / "__pycache__/element.pyc": "compiled",
    }.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (source / "slurm").symlink_to(linked)
    monkeypatch.setattr(code_snapshot, "OURS", source.parent)
    return take(tmp_path / "code")


ANSWER = "from perfsweep.slurm import element; print(element.answer, element.__file__)"


@pytest.mark.parametrize(
    "change", [lambda file: file.write_text("answer = 43\n"), Path.unlink], ids=["edited", "lost"]
)
def test_a_node_whose_copy_was_changed_unpacks_it_again(
    archive: Path, tmp_path: Path, change: Callable[[Path], object]
):
    imported(archive, tmp_path / "disk", ANSWER)
    (file,) = tmp_path.glob("disk/*/*/perfsweep/slurm/element.py")
    change(file)
    assert imported(archive, tmp_path / "disk", ANSWER).stdout.startswith("42 ")


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda archive, disk: archive.write_bytes(archive.read_bytes().replace(b"42", b"43")), "Bad CRC-32"),
        (lambda archive, disk: (own(disk).mkdir(), (own(disk) / archive.parent.name).touch()), "directory"),
        (lambda archive, disk: own(disk).symlink_to(archive.parent), "another user can write there"),
        (lambda archive, disk: (own(disk).mkdir(), own(disk).chmod(0o777)), "another user can write there"),
    ],
    ids=["damaged", "a file", "a link", "open to all"],
)
def test_what_cannot_be_unpacked_is_said_in_one_sentence(
    archive: Path, tmp_path: Path, damage: Callable[[Path, Path], object], says: str
):
    disk = tmp_path / "disk"
    disk.mkdir()
    damage(archive, disk)
    done = imported(archive, disk, ANSWER)
    (line,) = done.stdout.splitlines()
    assert f"{archive} cannot be unpacked in {disk}" in line and says in line and "TMPDIR" in line
    assert (done.returncode, done.stderr) == (66, "")


def test_the_same_code_makes_the_same_archive_once(archive: Path, tmp_path: Path):
    before, copies = archive.stat().st_ino, sorted(archive.parent.iterdir())
    os.utime(tmp_path / "slurm/element.py", (1, 1))
    (tmp_path / "slurm/__pycache__/more.pyc").touch()
    assert take(archive.parents[1]) == archive and archive.stat().st_ino == before
    assert [file.name for file in copies] == ["element.py", "perfsweep.zip"]


def test_sweeps_of_one_folder_share_an_archive_that_each_leads_to(archive: Path, tmp_path: Path):
    first, second = (take(tmp_path / "runs" / name / "code", tmp_path / "runs" / ".code") for name in "ab")
    assert first.resolve() == second.resolve() == tmp_path / "runs/.code" / archive.parent.name / archive.name
    assert [path.name for path in second.parents[1].iterdir()] == [archive.parent.name], "one link"
    assert code_snapshot.latest(second.parents[1]) == second
    assert code_snapshot.digest(second) == archive.parent.name
    assert (tmp_path / "runs/.code/.gitignore").read_text() == "*\n"
    (tmp_path / "runs").rename(tmp_path / "moved")
    moved = tmp_path / "moved/b/code" / archive.parent.name / archive.name
    assert imported(moved, tmp_path / "disk", ANSWER).stdout.startswith("42 ")
    shutil.rmtree(moved.parent.resolve())
    assert take(moved.parents[1], tmp_path / "moved/.code") == moved and moved.is_file(), (
        "it is written again"
    )
    moved.write_bytes(b"damaged")
    take(moved.parents[1], tmp_path / "moved/.code")
    assert moved.read_bytes() == archive.read_bytes(), "and replaced where it is damaged"


def test_submitters_at_once_leave_the_same_whole_archive_and_one_that_dies_half_way_no_half(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of three has seen that no archive is there before any writes; the third dies when two are done."""
    forked, write = multiprocessing.get_context("fork"), code_snapshot.write_atomically
    meet, done = forked.Barrier(3, timeout=60), forked.Event()
    shared, half = tmp_path / "runs/.code", len(archive.read_bytes()) // 2

    def at_once(file: Path, content: bytes) -> None:
        if file.name == archive.name:
            meet.wait()
        write(file, content)

    def dies(descriptor: int) -> None:
        done.wait(60)
        os.ftruncate(descriptor, half)
        os.kill(os.getpid(), signal.SIGKILL)

    def submit(name: str) -> None:
        if name == "c":
            monkeypatch.setattr(os, "fsync", dies)
        take(tmp_path / "runs" / name / "code", shared)

    monkeypatch.setattr(code_snapshot, "write_atomically", at_once)
    submitters = [forked.Process(target=submit, args=(name,)) for name in "abc"]
    for one in submitters:
        one.start()
    for one in submitters:
        one.join()
        if one is submitters[1]:
            done.set()
    assert [one.exitcode for one in submitters] == [0, 0, -signal.SIGKILL]
    for name in "ab":
        copy = tmp_path / "runs" / name / "code" / archive.parent.name / archive.name
        assert copy.resolve().parent.parent == shared and copy.read_bytes() == archive.read_bytes()
    named = [file.name for file in (shared / archive.parent.name).iterdir() if not file.name.startswith(".")]
    assert sorted(named) == ["element.py", archive.name]


OPENED = """
import sys
opened = set()
sys.addaudithook(lambda event, words: event == "open" and opened.add(str(words[0])))
import perfsweep.pipelines.execution.pack
print(len(opened), len([name for name in opened if {runs!r} in name]))
"""


@pytest.mark.slow
def test_a_pack_opens_few_files_of_the_folder_that_nodes_share(tmp_path: Path):
    runs = tmp_path / "runs"
    ours = take(runs / "a/code", runs / ".code")
    assert len(list(runs.rglob("*"))) <= 8
    done = imported(ours, tmp_path / "disk", OPENED.format(runs=str(runs)))
    everywhere, shared = map(int, done.stdout.split())
    assert everywhere > 200 and shared <= 3, done.stderr


def test_libraries_are_carried_to_environments_that_can_import_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    site, code = tmp_path / "site", tmp_path / "code"
    (site / "compiled" / "tests").mkdir(parents=True)
    (site / "compiled" / "__init__.py").write_text("")
    (site / "single.py").write_text("")
    monkeypatch.syspath_prepend(site)
    monkeypatch.setattr(code_snapshot, "_CARRIED", {"compiled": True, "single": False, "absent": False})
    own = sysconfig.get_config_var("SOABI")
    for _ in range(2):  # the second time they are there
        code_snapshot.take_libraries(code)
    here, elsewhere = code_snapshot.libraries(code, own), code_snapshot.libraries(code, "cpython-399")
    assert [place.name for place in here] == [f"libraries-compiled-{own}", "libraries-single-any"]
    assert [place.name for place in elsewhere] == ["libraries-single-any"]
    found = {str(file.relative_to(code)) for file in code.rglob("*.py")}
    assert found == {f"{here[0].name}/compiled/__init__.py", "libraries-single-any/single.py"}
    assert not (here[0] / "compiled" / "tests").exists()
    assert len(list(code.iterdir())) == 2, "no half copy is left"
    assert not code_snapshot.latest(code).exists(), "a library is no archive of ours"


def test_files_of_a_workload_that_lie_elsewhere_by_now_are_copied_again(tmp_path: Path) -> None:
    for place in ("one", "two"):
        (tmp_path / place).mkdir()
        for name in ("train.py", "model.py"):
            (tmp_path / place / name).write_text(f"{place} {name}")
        files = [*(tmp_path / place).iterdir()]
        for _ in range(2):
            code_snapshot.take_sources(tmp_path / "code", "digest", files)
        copies = Snapshot(code_snapshot.sources_place(tmp_path / "code", "digest")).copies
        assert {file: copy.read_text() for file, copy in copies.items()} == {f: f.read_text() for f in files}
    assert len([*(tmp_path / "code").iterdir()]) == 1


def test_the_archive_taken_last_is_the_latest(tmp_path: Path):
    for number, name in enumerate(["b" * 12, "a" * 12, "sources-0", "libraries-x-any", ".half.1"]):
        (tmp_path / name).mkdir()
        if len(name) == 12:
            (tmp_path / name / code_snapshot.ARCHIVE).touch()
        os.utime(tmp_path / name, (number, number))
    assert code_snapshot.latest(tmp_path) == tmp_path / ("a" * 12) / code_snapshot.ARCHIVE
    named = [
        code_snapshot.digest(tmp_path / name / "x") for name in ("a" * 12, "sources-0", "a" * 11, "G" * 12)
    ]
    assert named == ["a" * 12, None, None, None]


def test_a_job_imports_what_the_archive_holds_from_the_disk_of_its_node(archive: Path, tmp_path: Path):
    (tmp_path / "slurm/element.py").write_text("answer = 43\n")  # the checkout goes on
    place = own(tmp_path / "disk") / archive.parent.name
    for _ in range(2):
        assert (
            imported(archive, tmp_path / "disk", ANSWER).stdout == f"42 {place}/perfsweep/slurm/element.py\n"
        )
    assert place.parent.stat().st_mode & 0o777 == 0o700
    assert not list(place.rglob(".*")), "no half file is left"
