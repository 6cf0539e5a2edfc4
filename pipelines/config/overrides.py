"""Overrides that are not typed: of the folder that you measure in, and options that Python gives by name.

``perfsweep.yaml`` says what every command in its folder starts from::

    conf: configs               # folder with site profiles and sweeps of your own: configs/cluster/site.yaml
    overrides:                  # as on the command line, which wins
      - cluster=site
      - tracking.project=my-study
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from importlib.resources import files
from numbers import Real
from pathlib import Path
from typing import Any

from perfsweep.pipelines.config import types
from perfsweep.pipelines.config.external_workload import read_mapping
from perfsweep.pipelines.config.types import MeasureConfig
from perfsweep.workloads.errors import ConfigError

FILE = "perfsweep.yaml"
_PLAIN = re.compile(r"[\w./:-]+", re.ASCII)
_AS_IT_IS = re.compile(r"[\w.:/+@%*|-]*|[\[{\"'$].*")
"""Text that means the same on the command line: a word, or what Hydra's own syntax begins with."""


def of_folder(allowed: Collection[str], typed: Sequence[str]) -> list[str]:
    """List the overrides that the current folder adds in front of those on the command line.

    `allowed` are the command's parts of the configuration: a cluster means nothing to ``perfsweep run``.

    Raises
    ------
    ConfigError
        ``perfsweep.yaml`` cannot be meant; the message names the entry.
    """
    file = Path.cwd() / FILE
    if not file.is_file():
        return []
    values = read_mapping(file)
    if unknown := sorted(set(values) - {"conf", "overrides"}):
        raise ConfigError(f"{file}: {unknown[0]} is unknown; it has conf and overrides")
    own = values.get("overrides") or []
    if not isinstance(own, list) or not all(isinstance(text, str) and "=" in text for text in own):
        raise ConfigError(f"{file}: overrides must be a list of texts such as cluster=site")
    taken = {_key(text) for text in typed}
    kept = [text for text in own if _key(text) not in taken and _key(text).split(".")[0] in allowed]
    return [*_search_path(file, values.get("conf")), *kept]


def conf_folder() -> Path | None:
    """Find the current folder's own configuration: for completion, which must not complain."""
    for line in Path(FILE).read_text().splitlines() if Path(FILE).is_file() else ():
        name, colon, value = line.partition("#")[0].partition(":")
        if name == "conf" and colon and value.strip():
            return Path(value.strip().strip("'\""))
    return None


def search_path(folder: Path) -> str:
    """The override by which Hydra finds a folder: it takes what follows ``file://`` as it is."""
    place = f"file://{folder.resolve()}"
    return f"hydra.searchpath=[{place if _PLAIN.fullmatch(place) else quoted(place)}]"


def quoted(text: str) -> str:
    """Quote text for Hydra; backslashes are doubled where a quote follows, as it reads them."""
    escaped = re.sub(r"(\\*)'", r"\1\1\'", text)
    return "'" + escaped + "\\" * (len(escaped) - len(escaped.rstrip("\\"))) + "'"


def _key(override: str) -> str:
    return override.partition("=")[0].lstrip("+~")


def _search_path(file: Path, conf: object) -> list[str]:
    if conf is None:
        return []
    folder = file.parent / str(conf)
    if not folder.is_dir():
        raise ConfigError(f"{file}: conf={conf} is no folder; create it, or remove the line")
    for own in sorted(folder.rglob("*.yaml")):
        name = own.relative_to(folder)
        if files("perfsweep.conf").joinpath(name.as_posix()).is_file():
            raise ConfigError(f"{own} would be hidden by perfsweep's own {name}: give it another name")
    return [search_path(folder)]


def as_overrides(command: str, options: Mapping[str, Any]) -> list[str]:
    """Spell options out as overrides of a command; the fields of `measure` need no prefix.

    A mapping sets the fields of a part: ``cluster={"executor": "slurm"}``; the one of `workload` may name it,
    too: ``workload={"name": "digits", "width": 64}``, and a class names its module. Words, and text in
    Hydra's own syntax, are read as on the command line; any other text is taken literally.

    Raises
    ------
    ConfigError
        An option does not exist, or its value cannot be written down.
    """
    own = {field.name for field in dataclasses.fields(MeasureConfig)}
    known = [*types.parts(command), *sorted(own)]
    if unknown := [name for name in options if name not in known]:
        raise ConfigError(f"{unknown[0]} is unknown; choose from: {', '.join(known)}")
    prefixed = [(f"measure.{name}" if name in own else name, value) for name, value in options.items()]
    return [text for name, value in prefixed for text in _option(name, value)]


def _option(name: str, value: Any) -> list[str]:
    """Spell out one option: a mapping field by field, the name of the workload before its fields."""
    if not isinstance(value, Mapping):
        return [_override(name, value)]
    fields = dict(value)
    named = [_override(name, fields.pop("name"))] if name == "workload" and "name" in fields else []
    return [*named, *(_override(f"{name}.{key}", inner) for key, inner in fields.items())]


def _override(name: str, value: Any) -> str:
    if isinstance(value, type):
        value = _class_name(name, value)
    as_it_is = isinstance(value, str) and _AS_IT_IS.fullmatch(value)
    return f"{name}={value if as_it_is else _literal(name, value)}"


def _class_name(name: str, cls: type) -> str:
    """Name a workload by its class."""
    if cls.__module__ == "__main__" or "." in cls.__qualname__:
        raise ConfigError(
            f"{name}: processes of their own import {cls.__qualname__}; write it at the top level of a file,"
            " such as my_workload.py, and import it from there"
        )
    return f"{cls.__module__}:{cls.__qualname__}"


def _literal(name: str, value: Any) -> str:
    """Write a value in Hydra's syntax, in which keys are bare and text may be quoted."""
    match value:
        case None | True | False:
            return {None: "null", True: "true", False: "false"}[value]
        case Real():
            return str(value)
        case str() | os.PathLike():
            return quoted(os.fspath(value))
        case Mapping():
            return "{" + ", ".join(f"{key}: {_literal(name, inner)}" for key, inner in value.items()) + "}"
        case Iterable():
            return "[" + ", ".join(_literal(name, inner) for inner in value) + "]"
    raise ConfigError(f"{name}={value!r} cannot be an option: give text, a number, a list or a mapping")
