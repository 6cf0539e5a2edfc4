"""Source files that a module's code consists of: its own and its imports beside it. Imports nothing."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

OURS = Path(__file__).parents[1]
"""The folder that our packages lie in."""

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
    roots : folder that a top-level package is imported from, by its name
    anywhere : folder in which every module counts, such as that of somebody's script
    elsewhere : gives the folder that a top-level module is imported from where it stands in none of these
    """
    roots = {name: root.resolve() for name, root in roots.items()}
    anywhere = anywhere.resolve() if anywhere else None
    places = [*roots.values(), *([anywhere] if anywhere else [])]
    found = dict.fromkeys(file.resolve() for file in files)
    waiting, known = list(found), set[str]()
    while waiting:
        names = set(_imported_names(waiting.pop(), places)) - known
        known |= names
        for name in names:
            top = name.partition(".")[0]
            sources = _sources_of(name, roots.get(top, anywhere))
            if not sources and top and (other := elsewhere(top)):
                sources = _sources_of(name, other)
                places.append(other)
            fresh = [source for source in sources if source not in found]
            found.update(dict.fromkeys(fresh))
            waiting += fresh
    return sorted(found)


def folder_of(name: str) -> Path | None:
    """The folder of a top-level module that somebody works on: not installed, not Python's, not ours."""
    if name in sys.stdlib_module_names:
        return None
    try:
        spec = find_spec(name)
    except (ImportError, ValueError):  # something put into sys.modules by hand
        return None
    places = list(spec.submodule_search_locations or ()) if spec else []
    named = places[0] if places else spec.origin if spec and spec.has_location else None
    origin = Path(named or "")
    if named is None or INSTALLED & set(origin.parts) or origin.is_relative_to(OURS):
        return None
    return origin.parent.resolve()


_FROM = re.compile(r"^[ \t]*from[ \t]+(\.*)([\w.]*)[ \t]+import[ \t]+(\([^)]*\)|[^\n]+)", re.MULTILINE)
_IMPORT = re.compile(r"^[ \t]*import[ \t]+([^\n#;]+)", re.MULTILINE)
_NAME = re.compile(r"\w+")


def _imported_names(file: Path, roots: Iterable[Path]) -> Iterator[str]:
    """Dotted names that may be modules: of ``from a import b`` both ``a`` and ``a.b``.

    By pattern: every trial asks for the digest of its code, and parsing forty files would take a tenth of a
    second. A line of a docstring that looks like an import at worst adds a file that exists.
    """
    if file.suffix != ".py":
        return
    text, package = file.read_text(errors="replace"), _package_of(file, roots)
    for names in _IMPORT.findall(text):
        yield from (name.split()[0] for name in names.split(",") if name.strip())
    for dots, module, names in _FROM.findall(text):
        parent = package[: len(package) - len(dots) + 1] if dots else []
        base = ".".join([*parent, *([module] if module else [])])
        yield base
        yield from (f"{base}.{name}" for name in _NAME.findall(names))


def _package_of(file: Path, roots: Iterable[Path]) -> list[str]:
    for root in roots:
        if file.is_relative_to(root):
            return list(file.relative_to(root).parent.parts)
    return []


def _sources_of(name: str, root: Path | None) -> list[Path]:
    return list(_files_of(name, root)) if root else []


def _files_of(name: str, root: Path) -> Iterator[Path]:
    """The module and the packages around it."""
    parts = [part for part in name.split(".") if part]
    for depth in range(1, len(parts) + 1):
        place = root.joinpath(*parts[:depth])
        for file in (place / "__init__.py", place.with_name(place.name + ".py")):
            if file.is_file():
                yield file
