"""A copy of the packages jobs import: whole, left alone once there, and compiled as far as ours is."""

from __future__ import annotations

import os
import py_compile
import subprocess
import sys
from pathlib import Path

import pytest

from pipelines.store import code_snapshot

IMPORTED_FROM = "import sys, pipelines.store.files; print(pipelines.store.files.__file__)"


def from_copy(place: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(place), "PYTHONSAFEPATH": "1"}
    return subprocess.run(
        [sys.executable, *flags, "-c", IMPORTED_FROM], capture_output=True, text=True, check=True, env=env
    )


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return code_snapshot.take(tmp_path_factory.mktemp("sweep") / "code")


def test_a_job_imports_the_copy(place: Path):
    assert from_copy(place).stdout.strip() == str(place / "pipelines" / "store" / "files.py")


def test_what_is_compiled_already_is_not_compiled_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    source = tmp_path / "pipelines"
    (source / "store").mkdir(parents=True)
    for name in ("__init__", "store/__init__", "store/files"):
        (source / f"{name}.py").write_text("")
        py_compile.compile(str(source / f"{name}.py"))
    (source / "store" / "__pycache__" / "files.cpython-311.pyc.140213").write_bytes(b"half")
    monkeypatch.setattr(code_snapshot, "_sources", lambda: [source])
    place = code_snapshot.take(tmp_path / "code")
    said = from_copy(place, "-v").stderr
    assert f"matches {place / 'pipelines' / 'store' / 'files.py'}" in said, (
        "Python found the compiled file fit for the copy"
    )
    assert not list(place.rglob("*.pyc.*")), "what another process is writing stays behind"


def test_the_same_code_is_copied_once(place: Path):
    before = place.stat().st_mtime_ns
    assert code_snapshot.take(place.parent) == place
    assert place.stat().st_mtime_ns == before
    assert not list(place.parent.glob(".*")), "no half copy is left"
