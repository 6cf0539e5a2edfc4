"""Find a workload: built in, by entry point group `perfsweep.workloads`, or as `module:Class`."""

from __future__ import annotations

import hashlib
import importlib
import sys
import sysconfig
import traceback
from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from perfsweep.workloads import api, snapshot, toggles
from perfsweep.workloads.api import Declaration, Workload
from perfsweep.workloads.errors import ConfigError, ContractError, PerfsweepError, did_you_mean
from perfsweep.workloads.imports import INSTALLED, PACKAGE, folder_of, followed

ENTRY_POINT_GROUP = "perfsweep.workloads"

_ONCE_ON_TOP = ("conf", "pipelines", "slurm", "workloads")
"""Packages that version 0.1 had under these names."""

CODE = frozenset({".py", ".cpp", ".cu", ".h"})

BUILT_IN = {
    "digits": "perfsweep.workloads.digits.workload:Digits",
    "probe1d": "perfsweep.workloads.probe1d.workload:Probe1D",
    "script": "perfsweep.workloads.script.workload:Script",
    "selftest": "perfsweep.workloads.selftest.workload:Selftest",
    "spd": "perfsweep.workloads.spd.workload:Spd",
    "prover": "perfsweep.workloads.prover.workload:Prover",
    "latentwire": "perfsweep.workloads.latentwire.workload:LatentWire",
    "command": "perfsweep.workloads.command.workload:Command",
}

_APART = ("digits", "probe1d", "spd", "prover", "latentwire")
"""Workloads that declare in a module of their own, in a class of the same name."""
_DECLARATION = "declaration"

_REFUSED_FIRST = {"script": "perfsweep.workloads.script.sources:refuse_first"}
"""What looks at a configuration before the workload, and torch with it, is imported."""


def refuse_first(values: Mapping[str, Any]) -> None:
    """Refuse what can be seen of a workload's configuration in a fraction of a second.

    Raises
    ------
    ConfigError
        It cannot be used.
    """
    module, _, function = _REFUSED_FIRST.get(values.get("name", ""), "").partition(":")
    if module:
        getattr(importlib.import_module(module), function)(values)


def names() -> dict[str, str]:
    """Every workload that can be named, with where it comes from."""
    return {**BUILT_IN, **{point.name: point.value for point in _entry_points()}}


def find(name: str) -> type[Workload]:
    """The workload class called `name`.

    Raises
    ------
    ConfigError
        Nothing has this name, or it cannot be imported.
    ContractError
        What was found is no workload, or a broken one.
    """
    module_name, class_name = _target(name)
    cls = getattr(_imported(module_name, name), class_name, None)
    if cls is None:
        own = [one for one, value in vars(sys.modules[module_name]).items() if _is_workload(value)]
        hint = did_you_mean(class_name, own)
        raise ConfigError(
            f"workload={name}: module {module_name} has no {class_name}; {hint}its workloads are:"
            f" {', '.join(own) or 'none'}"
        )
    if not _is_workload(cls):
        raise ContractError(
            f"workload={name}: {module_name}:{class_name} is no subclass of perfsweep.workloads.api.Workload"
        )
    return cls


def declared(name: str) -> type[Declaration]:
    """What the workload called `name` declares, without torch where that is apart from what runs.

    Raises as `find` does.
    """
    if name not in _APART:
        return find(name)
    module, _, class_name = BUILT_IN[name].partition(":")
    return getattr(_imported(f"{module.rpartition('.')[0]}.{_DECLARATION}", name), class_name)


def _is_ours(cls: type[Declaration]) -> bool:
    return cls.__module__.startswith(f"{__package__}.")


def _is_workload(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, Workload)


def module_of(name: str) -> str:
    """The module that holds the workload called `name`, which is not imported for it.

    Raises
    ------
    ConfigError
        Nothing has this name.
    """
    return _target(name)[0]


def _target(name: str) -> tuple[str, str]:
    target = names().get(name, name)
    if ":" not in target:
        raise ConfigError(
            f"workload={name} is unknown; {did_you_mean(name, names())}choose from:"
            f" {', '.join(sorted(names()))}, or write package.module:Class"
        )
    module_name, _, class_name = target.partition(":")
    return module_name, class_name


def sources(cls: type[Declaration]) -> list[Path]:
    """The source files that decide what a workload computes.

    Its folder's modules and kernels, what they import from there, from `workloads` and from other folders
    that nothing is installed in, headers that kernels may share, the contract, and the shared toggles. Where
    trials run copies of a user's files, these.
    """
    module = sys.modules[cls.__module__]
    file, ours, root = _file_of(module), Path(__file__).parent, import_root(cls)
    # A package's modules belong together; a lone module in a folder owns only neighbours it imports.
    own = _package_files(file.parent) if module.__package__ else [file]
    package, place, elsewhere = cls.__module__.partition(".")[0], root or _root(cls), cache(folder_of)
    kept = snapshot.current()
    copies = kept.copies if kept else {}
    if kept and file.resolve() in copies:
        own, place = (
            _copied_files(kept, file, is_package=bool(module.__package__)),
            kept.copy_of(place.resolve()),
        )
        root, elsewhere = place if root else None, _nowhere
        if kept.is_version:
            elsewhere = cache(lambda name: _copied_folder(kept, name))
    theirs = {package: place / package} if module.__package__ and not _is_ours(cls) else {}
    roots = {str(__package__): ours, **theirs}
    shared = sorted(ours.glob("*.h")) if any(path.suffix == ".cpp" for path in own) else []
    code = followed([*own, _file_of(api), _file_of(toggles)], roots, root, elsewhere if root else _nowhere)
    return [*code, *shared, *(copies.get(path.resolve(), path) for path in cls.files)]


def from_outside(cls: type[Declaration]) -> list[Path]:
    """The source files of a workload that are a user's: neither ours nor installed."""
    ours = Path(__file__).parent
    users = [path for path in sources(cls) if not (path.is_relative_to(ours) or INSTALLED & set(path.parts))]
    return list(dict.fromkeys([*users, *cls.files]))


def _copied_files(kept: snapshot.Snapshot, file: Path, *, is_package: bool) -> list[Path]:
    """The copies that a workload certainly has: all, or of a whole version the ones next to it."""
    if not kept.is_version:
        return list(kept.copies.values())
    copy = kept.copy_of(file.resolve())
    return _package_files(copy.parent) if is_package else [copy]


def _copied_folder(kept: snapshot.Snapshot, name: str) -> Path | None:
    folder = folder_of(name)
    return kept.folder(folder) if folder else None


def _nowhere(name: str) -> None:
    return None


def _package_files(folder: Path) -> list[Path]:
    """Modules and kernels of a package and of the packages in it."""
    inner = [place.parent for place in folder.glob("*/__init__.py")]
    return sorted(
        [path for path in folder.iterdir() if path.suffix in CODE]
        + [file for place in inner for file in _package_files(place)]
    )


def digest(files: list[Path]) -> str:
    """SHA-256 over names and contents of files, wherever they lie: jobs import a snapshot elsewhere."""
    each = {hashlib.sha256(file.name.encode() + b"\0" + file.read_bytes()).digest() for file in files}
    return hashlib.sha256(b"".join(sorted(each))).hexdigest()


def import_root(cls: type[Declaration]) -> Path | None:
    """The folder to import a workload from, or None for one of our own or an installed one."""
    root = _root(cls)
    return None if INSTALLED & set(root.parts) or _is_ours(cls) else root


def origin(cls: type[Declaration]) -> str:
    """What tells a workload from others of its name: what it says, else its class and its file.

    Of one of our own or an installed one the module, wherever it is installed; else the file.
    """
    module = cls.__module__
    place = module if import_root(cls) is None else _file_of(sys.modules[module]).resolve()
    if _is_ours(cls):  # what runs, though that may declare apart
        place = f"{module.rpartition('.')[0]}.workload"
    return cls.origin or f"{place}:{cls.__qualname__}"


def _root(cls: type[Declaration]) -> Path:
    return _file_of(sys.modules[cls.__module__]).parents[cls.__module__.count(".")]


def _entry_points() -> list[EntryPoint]:
    return [point for point in _installed(tuple(sys.path)) if point.name not in BUILT_IN]


@cache
def _installed(path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    """Entry points of the packages on `path`, which is `sys.path`: each look reads a file of every one."""
    return tuple(entry_points(group=ENTRY_POINT_GROUP))


def _imported(module_name: str, name: str) -> ModuleType:
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))  # a console script's path does not hold the user's folder
    snapshot.install_current()
    try:
        return importlib.import_module(module_name)
    except ImportError as error:
        raise ConfigError(f"workload={name}: {_why_missing(module_name, error)}") from error
    except PerfsweepError:
        raise
    except Exception as error:  # the module is the user's: whatever it raises is theirs to read, in one line
        what = f"{type(error).__name__}: {error}{_last_line(error)}"
        raise ConfigError(f"workload={name}: module {module_name} fails when imported: {what}") from error


def _why_missing(module: str, error: ImportError) -> str:
    """Say which module is missing: the workload's own, one that it needs, or one that ours hides."""
    top, missing = module.partition(".")[0], error.name or ""
    if top == PACKAGE and (Path.cwd() / top).is_dir():
        return (
            f"{Path.cwd() / top} has the name of perfsweep, which is imported in its place; rename the folder"
        )
    if not isinstance(error, ModuleNotFoundError):
        return f"module {module} cannot be imported: {type(error).__name__}: {error}{_last_line(error)}"
    if missing and missing != module and not module.startswith(f"{missing}."):
        package = missing.partition(".")[0]
        if package in _ONCE_ON_TOP:
            return f"module {module} imports {package}: since version 0.2 that is {PACKAGE}.{package}"
        return f"module {module} needs the package {package}, which is not installed: pip install {package}"
    return (
        f"module {module} cannot be imported ({error}); run in the folder that holds it, or install the"
        " package"
    )


def _last_line(error: Exception) -> str:
    """Where the user's own code was when it failed: the last line outside of installed packages."""
    if isinstance(error, SyntaxError):
        return ""  # its message names file and line
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(("<", *sysconfig.get_paths().values(), str(Path(__file__).parent)))
    ]
    return f" ({frames[-1].filename}:{frames[-1].lineno}: {frames[-1].line})" if frames else ""


def _file_of(module: ModuleType) -> Path:
    if module.__file__ is None:
        raise ContractError(
            f"module {module.__name__} has no source file, so what it computes cannot be identified"
        )
    return Path(module.__file__)
