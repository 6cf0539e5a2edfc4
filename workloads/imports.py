"""Source files that a module's code consists of: its own and its imports next to it. Imports nothing."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

PACKAGE = "perfsweep"

OURS = Path(__file__).parents[2]
"""The folder that `PACKAGE` is imported from; in a checkout its sub-packages are links out of it."""

INSTALLED = frozenset(("site-packages", "dist-packages"))
"""Names of folders that hold what a package manager has put there."""


def followed(
    files: Iterable[Path],
    roots: Mapping[str, Path],
    anywhere: Path | None = None,
    elsewhere: Callable[[str], Path | None] = lambda name: None,
) -> list[Path]:
    """`files`, and every file they import, directly or through others.

    Parameters
    ----------
    roots : folders of packages, by their names with all dots
    anywhere : folder in which every module counts, such as that of a user's script
    elsewhere : gives the folder that a top-level module is imported from if none of these has it
    """
    places = [_Place(tuple(name.split(".")), settled(root)) for name, root in roots.items()]
    beside = [_Place((), settled(anywhere))] if anywhere else []
    found = dict.fromkeys(map(settled, files))
    waiting, known = list(found), set[str]()
    while waiting:
        names = set(_imported_names(waiting.pop(), [*places, *beside])) - known
        known |= names
        for parts in (name.split(".") for name in names if name):
            own = [place for place in places if place.holds(parts)] or beside
            sources = [file for place in own[:1] for file in place.files_of(parts)]
            if not sources and (other := elsewhere(parts[0])):
                beside.append(_Place((), other))
                sources = list(beside[-1].files_of(parts))
            fresh = [source for source in sources if source not in found]
            found.update(dict.fromkeys(fresh))
            waiting += fresh
    return sorted(found)


def settled(path: Path) -> Path:
    """Resolve a path, unless it is of our own code: what is imported through a link has the link's name."""
    path = path.absolute()
    return path if path.is_relative_to(OURS) else path.resolve()


@dataclass(frozen=True)
class _Place:
    """A folder, and the package that it is; without one, modules of every name lie in it."""

    package: tuple[str, ...]
    folder: Path

    def holds(self, parts: Sequence[str]) -> bool:
        return tuple(parts[: len(self.package)]) == self.package

    def files_of(self, parts: Sequence[str]) -> Iterator[Path]:
        """Yield the files of a module and of the packages around it."""
        inner = parts[len(self.package) :]
        for depth in range(0 if self.package else 1, len(inner) + 1):
            place = self.folder.joinpath(*inner[:depth])
            for file in (place / "__init__.py", place.with_name(place.name + ".py")):
                if file.is_file():
                    yield file


def folder_of(name: str) -> Path | None:
    """The folder of a top-level module that the user works on: not installed, not Python's, not ours."""
    if name in sys.stdlib_module_names:
        return None
    try:
        spec = find_spec(name)
    except (ImportError, ValueError):  # something put into sys.modules by hand
        return None
    places = list(spec.submodule_search_locations or ()) if spec else []
    named = places[0] if places else spec.origin if spec and spec.has_location else None
    origin = Path(named or "")
    if named is None or INSTALLED & set(origin.parts) or origin.is_relative_to(OURS) or is_recorded(origin):
        return None
    return origin.parent.resolve()


def is_recorded(module: Path) -> bool:
    """Whether pip has put a module where it lies, whatever the folder, as ``pip install --target`` does."""
    records = (file.read_text(errors="replace") for file in module.parent.glob("*.dist-info/RECORD"))
    own = (f"{module.name}/", f"{module.name},")
    return any(line.startswith(own) for record in records for line in record.splitlines())


_FROM = re.compile(r"^[ \t]*from[ \t]+(\.*)([\w.]*)[ \t]+import[ \t]+(\([^)]*\)|[^\n]+)", re.MULTILINE)
_IMPORT = re.compile(r"^[ \t]*import[ \t]+([^\n#;]+)", re.MULTILINE)
_NAME = re.compile(r"\w+")


def _imported_names(file: Path, places: Iterable[_Place]) -> Iterator[str]:
    """Dotted names that may be modules: of ``from a import b`` both ``a`` and ``a.b``.

    By pattern: every trial asks for the digest of its code, and parsing forty files would take a tenth of a
    second. A line of a docstring that looks like an import at worst adds a file that exists.
    """
    if file.suffix not in (".py", ""):  # a console script has none
        return
    text, package = file.read_text(errors="replace"), _package_of(file, places)
    for names in _IMPORT.findall(text):
        yield from (name.split()[0] for name in names.split(",") if name.strip())
    for dots, module, names in _FROM.findall(text):
        parent = package[: len(package) - len(dots) + 1] if dots else []
        base = ".".join([*parent, *([module] if module else [])])
        yield base
        yield from (f"{base}.{name}" for name in _NAME.findall(names))


def _package_of(file: Path, places: Iterable[_Place]) -> list[str]:
    for place in places:
        if file.is_relative_to(place.folder):
            return [*place.package, *file.relative_to(place.folder).parent.parts]
    return []
