"""Options given by name, from Python, as the overrides that a user would type."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterable, Mapping
from numbers import Real
from typing import Any

from perfsweep.pipelines.config import home, types
from perfsweep.pipelines.config.types import MeasureConfig
from perfsweep.workloads.errors import ConfigError

_AS_IT_IS = re.compile(r"[\w.:/+@%*|-]*|[\[{\"'$].*")
"""Text that means the same on the command line: a word, or what Hydra's own syntax begins with."""


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
            return home.quoted(os.fspath(value))
        case Mapping():
            return "{" + ", ".join(f"{key}: {_literal(name, inner)}" for key, inner in value.items()) + "}"
        case Iterable():
            return "[" + ", ".join(_literal(name, inner) for inner in value) + "]"
    raise ConfigError(f"{name}={value!r} cannot be an option: give text, a number, a list or a mapping")
