"""Names that a configuration may choose from: workloads, named sweeps, and the files of each group.

Read from folders and metadata alone, so that a wrong name is refused, and a right one completed, before Hydra
or torch is imported.
"""

from __future__ import annotations

import ast
import re
from importlib.resources import files
from pathlib import Path

from perfsweep.pipelines.config import external_workload
from perfsweep.pipelines.config.overrides import conf_folder, of_folder
from perfsweep.workloads import registry
from perfsweep.workloads.errors import ConfigError, did_you_mean

DEFAULT_WORKLOAD = "digits"


def groups(command: str) -> dict[str, str]:
    """List the groups of files that a command chooses from, each with its default: what ``conf/`` says."""
    return dict(
        re.findall(
            r"^  - (\w+): (.+)$", files("perfsweep.conf").joinpath(f"{command}.yaml").read_text(), re.M
        )
    )


def choices(group: str, workload: str) -> list[str]:
    """Names that `group` may have next to this workload."""
    if group == "workload":
        return list(dict.fromkeys([*_files(group), *workloads()]))
    return sweeps(workload) if group == "sweep" else _files(group)


def workloads() -> list[str]:
    """Workloads that are registered, and workloads of the current folder."""
    return [*registry.names(), *workloads_here()]


def workloads_here() -> list[str]:
    """Workloads of the current folder: in modules that lie next to a YAML, and in YAMLs alone."""
    modules = [file for file in sorted(Path().glob("*.py")) if file.with_suffix(".yaml").is_file()]
    classes = [f"{file.stem}:{name}" for file in modules for name in _classes(file)]
    required = {name: keys for name in registry.names() if (keys := needed(name))}
    having = {
        file.name: _keys(file.read_text(errors="replace")).keys() for file in sorted(Path().glob("*.yaml"))
    }
    alone = [f"{name}:{file}" for file in having for name in required if required[name] <= having[file]]
    return [*classes, *alone]


def needed(workload: str) -> set[str]:
    """Fields that must be given for a workload, such as the program that it measures."""
    file = files("perfsweep.conf").joinpath("workload", f"{workload}.yaml")
    keys = _keys(file.read_text()) if file.is_file() else {}
    return {key for key, value in keys.items() if value == "???"}


def _keys(text: str) -> dict[str, str]:
    """Names at the top level of a YAML file, each with its value up to a comment."""
    return dict(re.findall(r"^(\w+):[ \t]*([^#\n]*?)[ \t]*(?:#.*)?$", text, re.M))


def sweeps(workload: str) -> list[str]:
    """Named sweeps of a workload, from its own folder and the YAML next to its module, then those for any."""
    outside = external_workload.read(workload)
    own = files("perfsweep.conf").joinpath("sweep", outside.name)
    folder = sorted(entry.name.removesuffix(".yaml") for entry in own.iterdir()) if own.is_dir() else []
    return list(dict.fromkeys([*outside.sweeps, *folder, *_files("sweep")]))


def purpose(workload: str) -> str:
    """Read what a workload does in a few words: the comment that its YAML begins with, else its docstring."""
    module, _, name = workload.partition(":")
    own = files("perfsweep.conf").joinpath("workload", f"{workload}.yaml")
    beside = Path(name if name.endswith(".yaml") else f"{module}.yaml")
    file = own if own.is_file() else beside if beside.is_file() else None
    comment = re.match(r"#\s*(.+)", file.read_bytes().decode(errors="replace")) if file else None
    if comment:
        return comment[1].strip()
    node = next((one for one in _class_nodes(Path(f"{module}.py")) if one.name == name), None)
    return ((node and ast.get_docstring(node)) or "").partition("\n")[0]


def workload_of(overrides: list[str]) -> str:
    """The workload that overrides name, or the default."""
    chosen = [text.partition("=")[2] for text in overrides if text.startswith("workload=")]
    return chosen[-1] if chosen else DEFAULT_WORKLOAD


def is_workload(word: str) -> bool:
    """Tell whether a word names a workload: registered, of a file, or as ``package.module:Class``."""
    return (
        word in _files("workload")
        or word in registry.names()
        or re.fullmatch(r"[\w./-]+:[\w./-]+", word) is not None
    )


def names_workload(command: str, typed: list[str]) -> bool:
    """Tell whether a workload is named: by what was typed, or by the current folder's ``perfsweep.yaml``."""
    return any(text.startswith("workload=") for text in [*of_folder(groups(command), typed), *typed])


def refuse_unknown(command: str, overrides: list[str]) -> None:
    """Refuse a workload, a named sweep or a file of another group that does not exist.

    Raises
    ------
    ConfigError
        One does not; the message lists the ones that do.
    """
    workload, having = workload_of(overrides), groups(command)
    if "workload" in having:
        refuse_unknown_workload(workload)
    for group, _, name in (text.partition("=") for text in overrides):
        if group not in having or group == "workload" or not re.fullmatch(r"[\w./-]+", name):
            continue  # Hydra's own syntax, such as a list, is Hydra's to judge
        if name not in (known := choices(group, workload)) and not _exists(group, name):
            hint = did_you_mean(name.rpartition("/")[2], known)
            raise ConfigError(f"{group}={name} is unknown; {hint}choose from: {', '.join(known)}")


def refuse_unknown_workload(name: str) -> None:
    """Refuse a workload that is neither registered, nor a configuration, nor ``package.module:Class``.

    Raises
    ------
    ConfigError
        It is none of these; the message lists the registered ones.
    """
    if name in _files("workload") or external_workload.file_in(name):
        return
    if ":" not in name and (hint := did_you_mean(name, workloads_here())):
        raise ConfigError(f"workload={name} is unknown; {hint}it lies in this folder")
    registry.module_of(name)


def _exists(group: str, name: str) -> bool:
    """Tell whether a file of a group has this name, in a folder of the group, such as ``probe1d/demo``."""
    own = conf_folder()
    places = [files("perfsweep.conf"), *([own] if own else [])]
    return any(place.joinpath(group, f"{name}.yaml").is_file() for place in places)


def _files(group: str) -> list[str]:
    """Configurations of a group: perfsweep's own, and those of the folder that perfsweep.yaml names."""
    own = conf_folder()
    places = [
        files("perfsweep.conf").joinpath(group),
        *([own / group] if own and (own / group).is_dir() else []),
    ]
    return sorted(
        entry.name.removesuffix(".yaml")
        for place in places
        for entry in place.iterdir()
        if entry.name.endswith(".yaml")
    )


def _classes(file: Path) -> list[str]:
    """Names of classes that look like workloads."""
    return [
        node.name
        for node in _class_nodes(file)
        if {one.name for one in node.body if isinstance(one, ast.FunctionDef)} & {"build", "step"}
    ]


def _class_nodes(file: Path) -> list[ast.ClassDef]:
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):  # absent or half written: nothing to offer yet
        return []
    return [node for node in tree.body if isinstance(node, ast.ClassDef)]
