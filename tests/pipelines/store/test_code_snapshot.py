"""A copy of the packages jobs import: whole, left alone once there, and compiled as far as ours is."""

from __future__ import annotations

import os
import py_compile
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from perfsweep.pipelines.store import code_snapshot
from perfsweep.pipelines.store.code_snapshot import take

IMPORTED_FROM = "import sys, perfsweep.pipelines.store.files; print(perfsweep.pipelines.store.files.__file__)"


def from_copy(place: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(place), "PYTHONSAFEPATH": "1"}
    return subprocess.run(
        [sys.executable, *flags, "-c", IMPORTED_FROM], capture_output=True, text=True, check=True, env=env
    )


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return take(tmp_path_factory.mktemp("sweep") / "code")


def test_a_job_imports_the_copy(place: Path):
    assert from_copy(place).stdout.strip() == str(place / "perfsweep" / "pipelines" / "store" / "files.py")


def test_what_is_compiled_already_is_not_compiled_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    source, linked = tmp_path / "checkout/perfsweep", tmp_path / "pipelines"
    source.mkdir(parents=True)
    (linked / "store").mkdir(parents=True)
    (source / "pipelines").symlink_to(linked)  # as a checkout has it
    for name in ("__init__", "pipelines/__init__", "pipelines/store/__init__", "pipelines/store/files"):
        (source / f"{name}.py").write_text("")
        py_compile.compile(str(source / f"{name}.py"))
    (linked / "store" / "__pycache__" / "files.cpython-311.pyc.140213").write_bytes(b"half")
    monkeypatch.setattr(code_snapshot, "OURS", source.parent)
    place = take(tmp_path / "code")
    said = from_copy(place, "-v").stderr
    assert f"matches {place / 'perfsweep' / 'pipelines' / 'store' / 'files.py'}" in said, (
        "Python found the compiled file fit for the copy"
    )
    assert not list(place.rglob("*.pyc.*")), "what another process is writing stays behind"


def test_the_same_code_is_copied_once(place: Path):
    before = place.stat().st_mtime_ns
    assert take(place.parent) == place
    assert place.stat().st_mtime_ns == before
    assert not list(place.parent.glob(".*")), "no half copy is left"


def test_sweeps_of_one_folder_share_a_copy_that_each_leads_to(tmp_path: Path):
    first, second = (take(tmp_path / "runs" / name / "code", tmp_path / "runs" / ".code") for name in "ab")
    assert first.resolve() == second.resolve() == tmp_path / "runs" / ".code" / first.name
    assert [path.name for path in second.parent.iterdir()] == [second.name], "one link, and nothing else"
    assert code_snapshot.latest(second.parent) == second and code_snapshot.digest(second) == first.name
    assert (tmp_path / "runs/.code/.gitignore").read_text() == "*\n"
    (tmp_path / "runs").rename(tmp_path / "moved")
    moved = tmp_path / "moved/b/code" / second.name
    assert from_copy(moved).stdout.startswith(str(moved))
    shutil.rmtree(moved.resolve())
    assert take(moved.parent, tmp_path / "moved/.code") == moved, "the link leads to a new copy"
    assert (moved / "perfsweep").is_dir()


def test_a_copy_that_broke_off_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def full(source: Path, fresh: Path, **options: object) -> None:
        fresh.mkdir(parents=True)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shutil, "copytree", full)
    with pytest.raises(OSError, match="No space left"):
        take(tmp_path / "a/code", tmp_path / ".code")
    assert not [*(tmp_path / ".code").iterdir()]


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
    assert code_snapshot.latest(code) == code, "a library is no copy of the packages"


def test_the_newest_copy_of_the_packages_is_the_latest(tmp_path: Path):
    for number, name in enumerate(["b" * 12, "a" * 12, "sources-0", "libraries-x-any", ".half.1"]):
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (number, number))
    assert code_snapshot.latest(tmp_path).name == "a" * 12
    named = [code_snapshot.digest(tmp_path / name) for name in ("a" * 12, "sources-0", "a" * 11, "G" * 12)]
    assert named == ["a" * 12, None, None, None]


def test_a_compiled_library_is_of_one_python_and_another_of_any(tmp_path: Path) -> None:
    code_snapshot.take_libraries(tmp_path)
    own = sysconfig.get_config_var("SOABI")
    assert sorted(place.name for place in tmp_path.iterdir()) == sorted(
        [f"libraries-greenlet-{own}", "libraries-pynvml-any"]
    )
    assert code_snapshot.libraries(tmp_path, "cpython-27") == [tmp_path / "libraries-pynvml-any"]
    assert len(code_snapshot.libraries(tmp_path, own)) == 2
