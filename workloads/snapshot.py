"""Copies of sources from outside the project: trials run these, whatever becomes of the originals.

A copy lies below the folder of the copies at the path of its original, where a user finds it too. Modules are
imported from the copies as if they lay where they did: each keeps the path of its original as `__file__`, and
what it finds next to itself, it finds there.
"""

from __future__ import annotations

import linecache
import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from importlib.abc import MetaPathFinder, SourceLoader
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType

VARIABLE = "PERFSWEEP_SOURCES"
"""Of the environment of trials: the folder of the copies."""


_HIDDEN = ".hidden"
"""File in the folder of the copies that only a whole version has: paths, each with a null byte between."""


@dataclass(frozen=True)
class Snapshot:
    """The copies below a folder: of the files that a workload consists of, or of all code of a version."""

    root: Path

    @cached_property
    def copies(self) -> dict[Path, Path]:
        """Every copy, by the path of its original.

        Raises
        ------
        OSError
            A folder of them is gone or cannot be read: imports would find the originals, as they are by now.
        """
        found = os.walk(self.root, onerror=_refuse)
        files = sorted(Path(folder, name) for folder, _, names in found for name in names)
        return {Path("/", file.relative_to(self.root)): file for file in files if file != self._list}

    @cached_property
    def hidden(self) -> frozenset[Path]:
        """Files that lie among the originals and are not in the version: none of its imports finds them."""
        if not self.is_version:
            return frozenset()
        return frozenset(Path(os.fsdecode(line)) for line in self._list.read_bytes().split(b"\0") if line)

    @property
    def is_version(self) -> bool:
        """Whether these are all files of a version, of which a workload imports some."""
        return self._list.exists()

    @property
    def _list(self) -> Path:
        return self.root / _HIDDEN

    def hide(self, files: Iterable[Path]) -> None:
        """Make this a version, which has none of `files`."""
        self._list.write_bytes(b"\0".join(os.fsencode(file) for file in files))

    def folder(self, original: Path) -> Path:
        """The folder of the copies of what lies in a folder; that folder itself where there are none."""
        copy = self.copy_of(original)
        return copy if copy.is_dir() else original

    def copy_of(self, original: Path) -> Path:
        """Where the copy of a file belongs."""
        return self.root / original.absolute().relative_to("/")


def _refuse(error: OSError) -> None:
    raise error


def current() -> Snapshot | None:
    """The copies that this process is to run; None where it runs the originals."""
    root = os.environ.get(VARIABLE)
    return Snapshot(Path(root)) if root else None


def text_of(original: Path, snapshot: Snapshot | None) -> bytes:
    """Read a source file, as it was when the copies were made."""
    return (snapshot.copies.get(original, original) if snapshot else original).read_bytes()


def install(snapshot: Snapshot, undo: ExitStack) -> None:
    """Have imports find the copies before the originals, until `undo`."""
    finder = _Finder(snapshot)
    sys.meta_path.insert(0, finder)
    undo.callback(sys.meta_path.remove, finder)


def install_current() -> None:
    """Have imports find the copies that this process is to run, if there are any, from here on."""
    kept = current()
    if kept is not None and not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder(kept))


def forget_originals() -> None:
    """Have what was imported from the originals of this process's copies imported again, from the copies."""
    kept = current()
    originals = {*kept.copies, *kept.hidden} if kept else set()
    names = {original.name for original in originals}
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file and Path(file).name in names and Path(file).resolve() in originals:
            del sys.modules[name]


def show_lines(original: Path, text: bytes) -> None:
    """Have tracebacks and `inspect` show the lines that run, not lines that an editor wrote since."""
    lines = text.decode(errors="replace").splitlines(keepends=True)
    # An entry without a time is never compared with the file.
    linecache.cache[str(original)] = (len(text), None, lines, str(original))


class _Finder(MetaPathFinder):
    """Finds modules in the folders of the import path as Python does, but for the files that were copied."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._copies = {str(original): copy for original, copy in snapshot.copies.items()}
        self._hidden = {str(original) for original in snapshot.hidden}
        known = (*snapshot.copies, *snapshot.hidden)
        self._folders = {str(parent) for original in known for parent in original.parents}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        name = fullname.rpartition(".")[2]
        entries = [entry or "." for entry in (sys.path if path is None else path)]
        bare, hiding = [], []
        for place, entry in enumerate(entries):
            # Resolved like the originals: a script may add "..", or a link, to the import path.
            folder = Path(entry).resolve()
            if str(folder) not in self._folders:
                continue
            if spec := self._spec_in(fullname, name, Path(entry), folder):
                return None if _stands_in(fullname, entries[:place]) else spec
            if self._hides(folder, name):
                hiding.append(entry)
            elif str(folder / name) in self._folders:
                bare.append(str(Path(entry, name)))
        if spec := _bare_package(fullname, entries, bare):
            return spec
        if hiding:
            return _beside(fullname, [entry for entry in entries if entry not in hiding])
        return self._found_by_others(fullname, path, target)

    def _hides(self, folder: Path, name: str) -> bool:
        return any(str(folder / tail) in self._hidden for tail in (f"{name}/__init__.py", f"{name}.py"))

    def _found_by_others(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None
    ) -> ModuleSpec | None:
        """The copy of what another finder knows a place for, as that of a package installed for editing."""
        for finder in sys.meta_path[sys.meta_path.index(self) + 1 :]:
            look = None if finder is PathFinder else getattr(finder, "find_spec", None)
            spec = look(fullname, path, target) if look else None
            origin = str(Path(spec.origin).resolve()) if spec and spec.has_location and spec.origin else ""
            if spec and origin in self._copies:
                loader = _Loader(Path(origin), self._copies[origin])
                inner = spec.submodule_search_locations
                return spec_from_file_location(
                    fullname, origin, loader=loader, submodule_search_locations=inner
                )
            if origin in self._hidden:
                raise _missing(fullname)
        return None

    def _spec_in(self, fullname: str, name: str, entry: Path, folder: Path) -> ModuleSpec | None:
        for tail, inner in ((f"{name}/__init__.py", [str(entry / name)]), (f"{name}.py", None)):
            if copy := self._copies.get(str(folder / tail)):
                loader = _Loader(entry.absolute() / tail, copy)
                return spec_from_file_location(
                    fullname, entry.absolute() / tail, loader=loader, submodule_search_locations=inner
                )
        return None


def _beside(fullname: str, entries: list[str]) -> ModuleSpec:
    """What else has the name of a module that the version has not got."""
    spec = PathFinder.find_spec(fullname, entries)
    if spec is None:
        raise _missing(fullname)
    return spec


def _missing(fullname: str) -> ModuleNotFoundError:
    return ModuleNotFoundError(f"No module named {fullname!r} in this version", name=fullname)


def is_copy(module: ModuleType) -> bool:
    """Whether a module was imported from a copy."""
    return isinstance(getattr(module, "__loader__", None), _Loader)


def _stands_in(fullname: str, entries: list[str]) -> bool:
    """Whether a folder that comes earlier in the import path has a module of the name."""
    spec = PathFinder.find_spec(fullname, entries) if entries else None
    return spec is not None and spec.loader is not None


def _bare_package(fullname: str, entries: list[str], bare: Iterable[str]) -> ModuleSpec | None:
    """A package without `__init__`, where nothing else has its name."""
    locations = list(bare)
    if not locations or _stands_in(fullname, entries):
        return None
    spec = ModuleSpec(fullname, None, is_package=True)
    spec.submodule_search_locations = locations
    return spec


class _Loader(SourceLoader):
    """Compiles a copy under the name of its original; nothing compiled is read or written."""

    def __init__(self, original: Path, copy: Path) -> None:
        self._original, self._copy = original, copy

    def get_filename(self, fullname: str) -> str:
        """The original's path, which becomes `__file__`."""
        return str(self._original)

    def get_data(self, path: str) -> bytes:
        """The copy's content; of any other path that a module asks for, what lies there."""
        if path != str(self._original):
            return Path(path).read_bytes()
        text = self._copy.read_bytes()
        show_lines(self._original, text)
        return text
