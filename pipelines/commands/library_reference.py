"""Write the reference of the library from its docstrings.

``python -m perfsweep.pipelines.commands.library_reference`` prints the page that lies in ``docs/library.md``.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from functools import cached_property
from typing import Any

import perfsweep
from perfsweep.pipelines.config.training_reference import (
    code,
    described,
    prose,
    raised,
    signature,
    summary,
    table,
)
from perfsweep.workloads import api

LIBRARIES = (
    "testing.conformance",
    *(f"workloads.{name}" for name in ("probe1d", "spd", "prover", "latentwire")),
)
"""Modules of functions to import: what tests use, and the workloads that are also libraries."""

_INTRODUCTION = """# The library

What Python code may use: the interface of sweeps, the contract of a workload, what tests hold it by, and the
functions of the built-in workloads. Training loops written as a class have a page of their own,
[training.md](training.md); `perfsweep.trainer.Marks` and `perfsweep.lightning.Marks` mark the steps of those
trainers, see [script.md](script.md).

This page is written by `python -m perfsweep.pipelines.commands.library_reference > docs/library.md`, from
the docstrings.
"""


def page() -> str:
    """Write the page in Markdown."""
    parts = [_INTRODUCTION, f"## perfsweep\n\n{summary(perfsweep)}\n"]
    parts += [entry(f"perfsweep.{name}", getattr(perfsweep, name)) for name in perfsweep.__all__]
    parts.append(f"## perfsweep.workloads.api\n\n{prose(api)}\n")
    parts += [entry(name, value) for name, value in contract()]
    for name in LIBRARIES:
        module = importlib.import_module(f"perfsweep.{name}")
        parts.append(f"## perfsweep.{name}\n\n{summary(module)}\n")
        parts += [entry(one, getattr(module, one)) for one in module.__all__]
    return "\n".join(parts)


def contract() -> Iterator[tuple[str, Any]]:
    """List what the contract of a workload consists of, the class first; aliases of types are left out."""
    names = sorted(api.__all__, key=lambda name: name != "Workload")
    values = ((name, getattr(api, name)) for name in names)
    return ((name, value) for name, value in values if inspect.isclass(value) or inspect.isfunction(value))


def entry(name: str, value: Any) -> str:
    """Write what a docstring says of a function or a class, and of what belongs to it."""
    call = [f"{code(name + _call(value))}\n"] if inspect.isfunction(value) else []
    parts = [f"### {name}\n", *call, f"{prose(value)}\n"]
    if parameters := described(value, "Parameters"):
        parts.append(table(("argument", "is"), _coded(parameters)))
    if inspect.isclass(value) and issubclass(value, Enum):
        parts.append(f"One of {', '.join(code(member.value) for member in value)}.\n")
    if rows := list(_fields(value)):
        told = any(row[-1] for row in rows)
        headings = ("field", "type", "default", "is")
        parts.append(table(headings, rows) if told else table(headings[:-1], (row[:-1] for row in rows)))
    if rows := list(_members(value)):
        parts.append(table(("member", "does"), rows))
    if errors := raised(value):
        parts.append(table(("raises", "when"), _coded(errors)))
    return "\n".join(parts)


def _call(value: Any) -> str:
    """Write how a function is called: its arguments with their defaults."""
    whole = inspect.signature(value)
    bare = [one.replace(annotation=inspect.Parameter.empty) for one in whole.parameters.values()]
    text = str(whole.replace(parameters=bare, return_annotation=inspect.Signature.empty))
    return re.sub(r"<function \S+ at 0x\w+>", "...", text)


def _coded(meanings: dict[str, str]) -> Iterator[tuple[str, str]]:
    return ((code(name), meaning) for name, meaning in meanings.items())


def _own_classes(value: Any) -> list[type]:
    """A class after those of ours that it extends; nothing of what is no class."""
    bases = reversed(value.__mro__) if inspect.isclass(value) else ()
    return [one for one in bases if one.__module__.partition(".")[0] == "perfsweep"]


def _fields(value: Any) -> Iterator[tuple[str, ...]]:
    """The fields of a dataclass."""
    meaning = {name: text for cls in _own_classes(value) for name, text in described(cls).items()}
    for one in fields(value) if inspect.isclass(value) and is_dataclass(value) else ():
        if not one.name.startswith("_"):
            yield code(one.name), code(str(one.type)), _default(one), meaning.get(one.name, "")


def _default(one: Field[Any]) -> str:
    default = one.default if one.default_factory is MISSING else one.default_factory()
    if default is MISSING:
        return "required"
    if isinstance(default, Enum):
        return code(repr(default.value))
    if is_dataclass(default):
        return code(f"{type(default).__name__}(...)")
    return "none" if callable(default) else code(repr(default))


def _members(value: Any) -> Iterator[tuple[str, str]]:
    """Methods and properties, in the order of the class; functions that are fields are none."""
    own = {name: member for cls in _own_classes(value) for name, member in vars(cls).items()}
    for name, member in own.items():
        if name.startswith("_") or name in getattr(value, "__dataclass_fields__", ()):
            continue
        if isinstance(member, property | cached_property):
            yield code(name), summary(member)
        elif isinstance(member, classmethod | staticmethod) or inspect.isfunction(member):
            yield code(f"{name}{signature(getattr(value, name))}"), summary(getattr(value, name))


if __name__ == "__main__":
    print(page(), end="")
