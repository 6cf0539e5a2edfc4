"""Imports that the trials of a pack share: which a trial notes, and what a server that has them forks."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from perfsweep.pipelines.trial import shared_imports


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder of installed modules: one that does nothing, and one that starts a thread."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "quiet_library.py").touch()
    (folder / "threaded_library.py").write_text(
        "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    )
    return folder


def names_noted(folder: Path, *replaced: str) -> str:
    shared_imports.note(folder, {"json"}, replaced)
    return Path(shared_imports.noted(folder)).read_text()


def test_a_trial_notes_the_installed_modules_it_imported_and_none_of_a_users(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a_users_module.py").touch()
    for folder in (installed, tmp_path):
        monkeypatch.syspath_prepend(folder)
    for name in ("quiet_library", "a_users_module"):
        monkeypatch.delitem(sys.modules, name, raising=False)
        __import__(name)
    noted = names_noted(tmp_path)
    assert all(f'"{name}"' in noted for name in ("quiet_library", "torch.nn", "random"))
    assert all(f'"{name}"' not in noted for name in ("json", "a_users_module", shared_imports.__name__))


def test_what_is_imported_after_a_package_that_a_level_replaces_something_in_is_not_shared(
    tmp_path: Path,
) -> None:
    noted = names_noted(tmp_path, "torch.nn.functional")
    assert '"random"' in noted and '"torch' not in noted


@pytest.mark.parametrize(
    ("file", "shared"), [("random.py", False), ("random/a.py", False), ("work.py", True)]
)
def test_what_a_version_of_the_code_has_under_the_same_name_is_not_shared(
    tmp_path: Path, file: str, shared: bool
) -> None:
    (tmp_path / "imports.json").write_text('["random", "json"]')
    copy = tmp_path / "version" / file
    copy.parent.mkdir(parents=True)
    copy.touch()
    assert bool(shared_imports.noted(tmp_path, [tmp_path / "version"])) is shared


@pytest.mark.parametrize("text", [None, "{", '{"json": 1}', "[1]"])
def test_a_file_of_imports_that_is_missing_or_damaged_shares_none(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "imports.json").write_text(text)
    assert shared_imports.noted(tmp_path) == ""
