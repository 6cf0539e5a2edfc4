"""A module of one's own, and what it imports from folders that nothing is installed in, run as copied."""

from __future__ import annotations

import importlib
import linecache
import pkgutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from workload_text import own_workload

from perfsweep.pipelines.store import code_snapshot
from perfsweep.workloads import native, registry, snapshot
from perfsweep.workloads.snapshot import VARIABLE, Snapshot

MODULE = own_workload("from . import near\nimport copied_far", "copied_far.SIZE", "float(near.STEPS)")
NAMES = ("copied_own", "copied_own.mine", "copied_own.near", "copied_far")


def forget() -> None:
    for name in NAMES:
        sys.modules.pop(name, None)
    importlib.invalidate_caches()


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Path]]:
    """The files of a workload whose copies this process is to run."""
    texts = {
        "here/copied_own/__init__.py": "",
        "here/copied_own/mine.py": MODULE,
        "here/copied_own/near.py": "STEPS = 7",
        "here/copied_own/kernel.cpp": "// as planned",
        "there/copied_far.py": "SIZE = 5",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    monkeypatch.setattr(sys, "path", [str(tmp_path / "here"), str(tmp_path / "there"), *sys.path])
    forget()
    yield [tmp_path / name for name in texts]
    forget()


def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    users = registry.from_outside(registry.find("copied_own.mine:Own"))
    code_snapshot.take_sources(tmp_path / "code", "digest", users)
    for name, value in code_snapshot.sources_env(tmp_path / "code", "digest").items():
        monkeypatch.setenv(name, value)
    forget()
    return users


def test_all_files_of_the_user_are_copied_and_none_of_ours(
    files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert sorted(copied(tmp_path, monkeypatch)) == sorted(files)
    assert not registry.from_outside(registry.find("digits"))


def test_what_was_edited_or_deleted_meanwhile_is_imported_as_it_was(
    files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = registry.digest(registry.sources(registry.find("copied_own.mine:Own")))
    copied(tmp_path, monkeypatch)
    for file in files:
        file.write_text("raise SystemExit('edited')") if "near" in file.name else file.unlink()
    cls = registry.find("copied_own.mine:Own")
    assert cls.Config().size == 5 and cls().progress() == 7.0
    assert sys.modules[cls.__module__].__file__ == str(files[1]), "it finds beside itself what lies there"
    assert registry.digest(registry.sources(cls)) == before, "and is the code that was planned"


@pytest.mark.skipif(native.compiler_here() is None, reason="needs a C++ compiler")
def test_a_kernel_is_built_from_its_copy(
    files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied(tmp_path, monkeypatch)
    built: list[list[str]] = []
    monkeypatch.setattr(native, "_build", lambda command, path, toggle: built.append(command))
    monkeypatch.setattr(native.ctypes, "CDLL", lambda path: path)
    native.library(files[3], "kernel", ("-DTEST",))
    assert built[0][-1] == str(Snapshot(tmp_path / "code" / "sources-digest").copy_of(files[3]))


def test_imports_are_left_alone_where_there_are_no_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    before = [*sys.meta_path]
    snapshot.install_current()
    assert sys.meta_path == before


def test_data_beside_a_module_are_those_that_lie_there(
    files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied(tmp_path, monkeypatch)
    files[1].write_text("edited")
    for name in ("aa.csv", "zz.csv"):
        (files[1].parent / name).write_text(name)
    module = sys.modules[registry.find("copied_own.mine:Own").__module__]
    assert snapshot.is_copy(module) and not snapshot.is_copy(registry)
    for name in ("aa.csv", "zz.csv"):
        assert pkgutil.get_data("copied_own.mine", name) == name.encode()
    assert module.__loader__.get_source("copied_own.mine") == MODULE  # type: ignore[union-attr]
    assert linecache.getline(str(files[1]), 2) == MODULE.splitlines()[1] + "\n", "as tracebacks show it"
