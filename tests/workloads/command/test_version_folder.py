"""A command in a version: it runs the version's code wherever it looks, and finds all else where it lies."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from perfsweep.workloads.command.version_folder import VersionFolder
from perfsweep.workloads.command.workload import Command
from perfsweep.workloads.snapshot import VARIABLE, Snapshot

Make = Callable[..., Command]
PYTHON = f"{sys.executable} -S"

TRAIN = """
import json, pathlib
import work
try:
    import fresh
except ImportError:
    fresh = None
beside = pathlib.Path(__file__).with_name("rows.txt").read_text()
found = {"main": MAIN, "work": work.X, "fresh": fresh is not None, "rows": float(beside)}
pathlib.Path("out.json").write_text(json.dumps(found))
print(json.dumps(found))
"""
REPORTED = {"json": ["main", "work", "fresh", "rows"]}


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The checkout, in a process that is to run another version."""
    write(
        tmp_path,
        {
            "train.py": TRAIN.replace("MAIN", "1"),
            "work.py": "X = 1",
            "fresh.py": "",
            "rows.txt": "7",
            "data/more.txt": "8",
            "src/tool/__init__.py": "X = 1",
            "src/rows.csv": "9",
        },
    )
    kept = Snapshot(tmp_path / "elsewhere/copies")
    write(
        kept.copy_of(tmp_path),
        {"train.py": TRAIN.replace("MAIN", "2"), "work.py": "X = 2", "src/tool/__init__.py": "X = 2"},
    )
    kept.hide([tmp_path / "fresh.py"])
    monkeypatch.setenv(VARIABLE, str(kept.root))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    return tmp_path


@pytest.mark.parametrize("program", ["train.py", "-m train", "{root}/train.py"])
def test_a_program_runs_the_versions_code_and_finds_its_data(root: Path, ran: Make, program: str) -> None:
    workload = ran(f"{PYTHON} {program.replace('{root}', str(root))}", evidence=REPORTED)
    assert workload.numbers() == {"main": 2, "work": 2, "fresh": 0, "rows": 7}
    assert not (root / "out.json").exists(), "what a program writes beside itself stays out of the checkout"


def test_import_paths_into_the_checkout_lead_to_the_version(
    root: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(root / "src"))  # as a package that is installed for editing
    place = tmp_path_factory.mktemp("place") / "version"
    version = VersionFolder.build(Snapshot(Path(os.environ[VARIABLE])), root, place)
    for given in ({}, {"PYTHONPATH": f"{root / 'src'}{os.pathsep}lib"}):
        env = {**os.environ, **version.environment(given)}
        command = [sys.executable, "-S", "-c", "import tool; print(tool.X)"]
        assert subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout == "2\n"
    assert (place / "src/rows.csv").read_text() == "9" and (place / "data").is_symlink()
