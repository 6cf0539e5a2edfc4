"""A patch that is kept: measured as a version, applied to files that have not changed, and to no others."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import pytest

from perfsweep.pipelines.store import code_snapshot
from perfsweep.pipelines.store.schema import Version
from perfsweep.pipelines.versions import tree
from perfsweep.pipelines.versions.tree import ORIGINAL, Patched, apply_patch, keep_patch, kept_patch
from perfsweep.workloads.api import Parity
from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.snapshot import Snapshot

BEFORE, AFTER = b"lr = 1\r\n", b"lr = 1\r\nfused = True\r\n"


@pytest.fixture
def script(tmp_path: Path) -> Path:
    file = tmp_path / "train.py"
    file.write_bytes(BEFORE)
    file.chmod(0o755)
    (tmp_path / "model.py").write_text("x = 1\n")
    return file


@pytest.fixture
def folder(tmp_path: Path, script: Path) -> Path:
    """A patch of the script alone, which consists of two files."""
    every = (script, script.with_name("model.py"))
    digests = {str(file): hashlib.sha256(file.read_bytes()).hexdigest() for file in every}
    facts = Patched(digests, (str(script),), ("--lr=1",), Parity.TOLERANCE, {"losses": 1e-3})
    for model in (b"x = 0\n", b"x = 1\n"):  # the second takes the place of the first
        keep_patch(tmp_path / "patch", facts, {str(every[1]): model, str(script): AFTER})
    return tmp_path / "patch"


def test_a_patch_is_applied_to_files_as_they_were_measured(folder: Path, script: Path) -> None:
    assert apply_patch(folder) == (str(script),)
    assert script.read_bytes() == AFTER
    assert script.stat().st_mode & 0o777 == 0o755
    with pytest.raises(ConfigError, match="applied already; nothing is written"):
        apply_patch(folder)
    shutil.rmtree(folder)
    with pytest.raises(ConfigError, match="holds no patch"):
        kept_patch(folder)


def test_another_file_that_has_changed_since_is_named_and_nothing_is_written(
    folder: Path, script: Path
) -> None:
    script.with_name("model.py").write_text("x = 2\n")
    with pytest.raises(ConfigError, match=r"model\.py has changed since it was measured: nothing is written"):
        apply_patch(folder)
    assert script.read_bytes() == BEFORE


def test_a_patch_and_the_original_are_two_versions_of_the_same_files(
    folder: Path, script: Path, tmp_path: Path
) -> None:
    files = [script, script.with_name("model.py")]
    original, changed = tree.with_patch(ORIGINAL, files), tree.with_patch(str(folder), files)
    assert original.files[script] == BEFORE and changed.files[script] == AFTER
    assert original.files[files[1]] == changed.files[files[1]]
    assert original.digest != changed.digest
    assert (original.parity, changed.parity) == (Parity.EXACT, Parity.TOLERANCE)
    own = {"digest": "d", "code": "", "config": {}, "levels": {"patch": str(folder)}}
    version = Version(sources=changed.digest, **own)
    tree.keep(tmp_path / "code", version, files)
    kept = Snapshot(code_snapshot.sources_place(tmp_path / "code", changed.digest))
    assert kept.is_version and kept.copies[script].read_bytes() == AFTER
