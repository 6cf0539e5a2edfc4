"""Find a workload: built in, by entry point group `perfsweep.workloads`, or as `module:Class`."""

from __future__ import annotations

import hashlib
import importlib
import sys
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType

from workloads import api, toggles
from workloads.api import Workload
from workloads.errors import ConfigError, ContractError, PerfsweepError
from workloads.imports import followed

ENTRY_POINT_GROUP = "perfsweep.workloads"

CODE = frozenset({".py", ".cpp", ".cu", ".h"})

BUILT_IN = {
    "digits": "workloads.digits.workload:Digits",
    "probe1d": "workloads.probe1d.workload:Probe1D",
    "script": "workloads.script.workload:Script",
    "selftest": "workloads.selftest.workload:Selftest",
    "spd": "workloads.spd.workload:Spd",
    "prover": "workloads.prover.workload:Prover",
    "latentwire": "workloads.latentwire.workload:LatentWire",
    "command": "workloads.command.workload:Command",
}


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
        raise ConfigError(f"workload={name}: module {module_name} has no {class_name}")
    if not (isinstance(cls, type) and issubclass(cls, Workload)):
        raise ContractError(
            f"workload={name}: {module_name}:{class_name} is no subclass of workloads.api.Workload"
        )
    return cls


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
            f"workload={name} is unknown; choose from: {', '.join(sorted(names()))}, or write"
            " package.module:Class"
        )
    module_name, _, class_name = target.partition(":")
    return module_name, class_name


def sources(cls: type[Workload]) -> list[Path]:
    """The source files that decide what a workload computes.

    Its folder's modules and kernels, what they import from there and from `workloads`, headers that kernels
    may share, the contract, and the shared toggles.
    """
    module = sys.modules[cls.__module__]
    file, ours = _file_of(module), Path(__file__).parent
    # A package's modules belong together; a lone module in a folder owns only neighbours it imports.
    own = _package_files(file.parent) if module.__package__ else [file]
    package = cls.__module__.partition(".")[0]
    root = import_root(cls)
    roots = {str(__package__): ours.parent, **({package: root or _root(cls)} if module.__package__ else {})}
    shared = sorted(ours.glob("*.h")) if any(path.suffix == ".cpp" for path in own) else []
    return [*followed([*own, _file_of(api), _file_of(toggles)], roots, root), *shared, *cls.files]


def _package_files(folder: Path) -> list[Path]:
    """Modules and kernels of a package and of the packages in it."""
    inner = [place.parent for place in folder.glob("*/__init__.py")]
    return sorted(
        [path for path in folder.iterdir() if path.suffix in CODE]
        + [file for place in inner for file in _package_files(place)]
    )


def digest(files: list[Path]) -> str:
    """SHA-256 over names and contents of files, wherever they lie: jobs import a snapshot elsewhere."""
    each = sorted(hashlib.sha256(file.name.encode() + b"\0" + file.read_bytes()).digest() for file in files)
    return hashlib.sha256(b"".join(each)).hexdigest()


def import_root(cls: type[Workload]) -> Path | None:
    """The folder to import a workload from, or None for one of our own or an installed one."""
    root = _root(cls)
    installed = {"site-packages", "dist-packages"} & set(root.parts)
    return None if installed or cls.__module__.split(".")[0] == __package__ else root


def origin(cls: type[Workload]) -> str:
    """What tells a workload from others of its name: what it says, else its class and where that stands.

    Of one of our own or an installed one the module, wherever it is installed; else the file.
    """
    module = cls.__module__
    place = module if import_root(cls) is None else _file_of(sys.modules[module]).resolve()
    return cls.origin or f"{place}:{cls.__qualname__}"


def _root(cls: type[Workload]) -> Path:
    return _file_of(sys.modules[cls.__module__]).parents[cls.__module__.count(".")]


def _entry_points() -> list[EntryPoint]:
    return [point for point in entry_points(group=ENTRY_POINT_GROUP) if point.name not in BUILT_IN]


def _imported(module_name: str, name: str) -> ModuleType:
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))  # a console script's path does not hold the user's folder
    try:
        return importlib.import_module(module_name)
    except ImportError as error:
        raise ConfigError(
            f"workload={name}: module {module_name} cannot be imported ({error}); "
            "run in the folder that holds it, or install the package"
        ) from error
    except PerfsweepError:
        raise
    except Exception as error:  # the module is the user's: whatever it raises is theirs to read, in one line
        raise ConfigError(
            f"workload={name}: module {module_name} fails when imported: {type(error).__name__}: {error}"
        ) from error


def _file_of(module: ModuleType) -> Path:
    if module.__file__ is None:
        raise ContractError(
            f"module {module.__name__} has no source file, so what it computes cannot be identified"
        )
    return Path(module.__file__)
