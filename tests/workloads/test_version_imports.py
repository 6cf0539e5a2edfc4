"""A version's modules are imported in place of the checkout's, and what it lacks is not found at all."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path

import pytest

from perfsweep.workloads import registry, snapshot
from perfsweep.workloads.imports import folder_of
from perfsweep.workloads.snapshot import VARIABLE, Snapshot

HERE = {
    "ver_a.py": "X = 'here'",
    "ver_new.py": "",
    "ver_pkg/__init__.py": "X = 'here'",
    "ver_pkg/fresh.py": "",
    "ver_made.py": "",
}
THERE = {"ver_a.py": "X = 'there'", "ver_gone.py": "X = 'there'", "ver_pkg/__init__.py": "X = 'there'"}


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def forget() -> None:
    for name in [name for name in sys.modules if name.startswith("ver_")]:
        del sys.modules[name]
    importlib.invalidate_caches()


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A checkout with other files than the version that this process runs."""
    root, copies = tmp_path / "repo", Snapshot(tmp_path / "copies")
    write(root, HERE)
    write(copies.copy_of(root), THERE)
    copies.hide([root / "ver_new.py", root / "ver_pkg/fresh.py"])
    monkeypatch.setenv(VARIABLE, str(copies.root))
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    monkeypatch.setattr(sys, "path", [str(root), *sys.path])
    forget()
    snapshot.install_current()
    yield root
    forget()


def test_modules_are_the_versions_even_those_that_the_checkout_has_lost(checkout: Path) -> None:
    for name in ("ver_a", "ver_gone", "ver_pkg"):
        module = importlib.import_module(name)
        assert module.X == "there" and snapshot.is_copy(module)
        assert Path(str(module.__file__)).is_relative_to(checkout), "data beside it are the checkout's"


@pytest.mark.parametrize("name", ["ver_new", "ver_pkg.fresh"])
def test_what_the_version_has_not_got_is_not_found(checkout: Path, name: str) -> None:
    with pytest.raises(ModuleNotFoundError, match="in this version") as missing:
        importlib.import_module(name)
    assert missing.value.name == name
    assert folder_of("ver_new") is None


def test_what_git_does_not_know_stays_within_reach(checkout: Path) -> None:
    assert not snapshot.is_copy(importlib.import_module("ver_made"))


def test_another_folder_may_have_a_module_of_a_hidden_name(checkout: Path, tmp_path: Path) -> None:
    write(tmp_path / "other", {"ver_new.py": "X = 'other'"})
    sys.path.append(str(tmp_path / "other"))
    assert importlib.import_module("ver_new").X == "other"


def test_a_package_installed_for_editing_is_the_versions_too(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Editable:
        @staticmethod
        def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
            return spec_from_file_location(name, checkout / "ver_a.py") if name == "ver_a" else None

    monkeypatch.setattr(sys, "path", [one for one in sys.path if one != str(checkout)])
    sys.meta_path.append(Editable)  # type: ignore[arg-type]
    assert importlib.import_module("ver_a").X == "there"


def test_a_class_consists_of_what_its_version_imports(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = "import ver_gone\nfrom perfsweep.workloads.selftest.workload import Selftest\n"
    source += "class Own(Selftest): ...\n"
    copies = tmp_path / "copies"
    write(Snapshot(copies).copy_of(checkout), {"ver_own.py": source, "ver_unused.py": ""})
    sys.meta_path.pop(0)
    snapshot.install_current()
    names = {
        file.name for file in registry.sources(registry.find("ver_own:Own")) if file.is_relative_to(copies)
    }
    assert names == {"ver_own.py", "ver_gone.py"}
