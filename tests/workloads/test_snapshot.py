"""Copies of sources: where they lie, and what is hidden of a version."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perfsweep.workloads import snapshot
from perfsweep.workloads.snapshot import Snapshot


@pytest.fixture
def kept(tmp_path: Path) -> Snapshot:
    for name in ("b.py", "a.py"):
        file = tmp_path / "copies/srv/me" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(name)
    return Snapshot(tmp_path / "copies")


def test_a_copy_lies_at_the_path_of_its_original(kept: Snapshot) -> None:
    assert list(kept.copies) == [Path("/srv/me/a.py"), Path("/srv/me/b.py")]
    assert kept.copies[Path("/srv/me/a.py")] == kept.copy_of(Path("/srv/me/a.py"))
    assert kept.copy_of(Path("/x/y.py")) == kept.root / "x/y.py"


def test_a_folder_of_copies_that_cannot_be_read_is_an_error_and_not_its_originals(
    kept: Snapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    def closed(folder: str, scandir: Callable[[str], Any] = os.scandir) -> Any:
        if str(folder).endswith("/srv/me"):
            raise PermissionError(13, "Permission denied", str(folder))
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", closed)
    with pytest.raises(PermissionError, match="copies/srv/me"):
        _ = kept.copies


def test_so_is_one_that_is_gone(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="gone"):
        _ = Snapshot(tmp_path / "gone").copies


def test_a_folder_without_copies_is_its_own(kept: Snapshot) -> None:
    assert kept.folder(Path("/srv/me")) == kept.root / "srv/me"
    assert kept.folder(Path("/srv/you")) == Path("/srv/you")
    assert kept.folder(Path("/srv/me/a.py")) == Path("/srv/me/a.py")


def test_a_whole_version_says_what_it_does_not_have(kept: Snapshot) -> None:
    assert not kept.is_version
    assert kept.hidden == frozenset()
    version = Snapshot(kept.root)
    files = [Path("/srv/me/c d.py"), Path("/srv/me/e\nf.py")]
    version.hide(files)
    assert version.is_version
    assert version.hidden == frozenset(files)
    assert list(version.copies) == [Path("/srv/me/a.py"), Path("/srv/me/b.py")]
    version.hide([])
    assert Snapshot(kept.root).is_version and Snapshot(kept.root).hidden == frozenset()


def test_a_process_runs_the_copies_that_its_environment_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(snapshot.VARIABLE, "/somewhere")
    assert snapshot.current() == Snapshot(Path("/somewhere"))
    monkeypatch.setenv(snapshot.VARIABLE, "")
    assert snapshot.current() is None
    monkeypatch.delenv(snapshot.VARIABLE)
    assert snapshot.current() is None
