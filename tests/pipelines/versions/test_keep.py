"""The code of a version in a sweep's folder: as it was planned, or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest
from git_repository import begin, commit

from perfsweep.pipelines.store import code_snapshot
from perfsweep.pipelines.store.schema import Version
from perfsweep.pipelines.versions import tree
from perfsweep.pipelines.versions.repository import Repository
from perfsweep.pipelines.versions.tree import keep
from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.snapshot import Snapshot


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = begin(tmp_path / "repo")
    commit(root, {"train.py": "A = 1"}, "one")
    commit(root, {"train.py": "A = 2"}, "two")
    return root


def version(root: Path, name: str | None) -> Version:
    own = {"digest": "d", "code": "", "config": {}, "repository": str(root), "levels": {"commit": str(name)}}
    return Version(commit=name, sources=tree.read(Repository(root), name or "worktree").digest, **own)


@pytest.mark.parametrize(("name", "text"), [("one", "A = 1"), (None, "A = 2")])
def test_a_version_is_kept_as_it_was_planned(root: Path, tmp_path: Path, name: str | None, text: str) -> None:
    one = version(root, name)
    keep(tmp_path / "code", one, [])
    copies = Snapshot(code_snapshot.sources_place(tmp_path / "code", one.sources)).copies
    assert {file: copy.read_text() for file, copy in copies.items()} == {root / "train.py": text}


def test_files_that_were_edited_since_are_not_taken_for_what_was_planned(root: Path, tmp_path: Path) -> None:
    checkout, one = version(root, None), version(root, "one")
    keep(tmp_path / "there", checkout, [])
    (root / "train.py").write_text("A = 3")
    with pytest.raises(
        ConfigError, match=r"commit=None: files of .* changed while the sweep was planned; start"
    ):
        keep(tmp_path / "code", checkout, [])
    keep(tmp_path / "there", checkout, [])
    keep(tmp_path / "code", one, [])
