"""Write the references of the library and of `perfsweep.workloads.training` from their docstrings.

``PYTHONPATH=tests/support python -m library_page`` prints the page that lies in ``docs/library.md``, and with
the word ``training`` after it the one in ``docs/training.md``.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from functools import cached_property
from types import ModuleType
from typing import Any

import perfsweep
from perfsweep.fields import default_of
from perfsweep.workloads import api, training
from perfsweep.workloads.training import toggles
from perfsweep.workloads.training.loop import Training
from perfsweep.workloads.training.parts import Parts

LIBRARIES = ("testing", *(f"workloads.{name}" for name in ("probe1d", "spd", "prover", "latentwire")))
"""Modules of functions to import: what tests use, and the workloads that are also libraries."""

_OF_THE_LIBRARY = """# The library

What Python code may use: the interface of sweeps, the contract of a workload, what tests hold it by, and the
functions of the built-in workloads. Training loops written as a class have a page of their own,
[training.md](training.md); `perfsweep.trainer.Marks` and `perfsweep.lightning.Marks` mark the steps of those
trainers, see [script.md](script.md).

This page is written by `PYTHONPATH=tests/support python -m library_page > docs/library.md`, from the
docstrings.
"""


def page() -> str:
    """Write the page of the library in Markdown."""
    parts = [_OF_THE_LIBRARY, f"## perfsweep\n\n{summary(perfsweep)}\n"]
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
    default = default_of(one)
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


_OF_TRAININGS = """# Training

A class for what is a training loop: `build` returns the `Parts` that are trained, and the loop acts on the
shared toggles. [workload.md](workload.md) has a whole one, `workloads/digits/` the example to copy.

This page is written by `PYTHONPATH=tests/support python -m library_page training > docs/training.md`, from
the docstrings in `workloads/training/`.
"""

_WRITTEN_OUT = """## A loop written out

```python
Parts(
    model,
    loss=lambda model, batch: model(**batch).loss,
    optimizer=lambda parameters, **how: torch.optim.AdamW(parameters, lr=3e-4, **how),
    loader=lambda **how: DataLoader(rows, config.batch_size, shuffle=True, collate_fn=pad, **how),
    accumulate=4,
    clip_norm=1.0,
    schedule=lambda optimizer: OneCycleLR(optimizer, 3e-4, total_steps=config.steps),
    held_out=held_out,
    evaluate=lambda model, batch: {"loss": model(**batch).loss.item()},
    evaluate_every=100,
    evaluate_batch=64,
)
```

With `toggles = (*shared_toggles(), *shared_toggles("ddp"))` the same training is also one of several ranks:
each takes its share of every batch, so that an iteration trains on the same rows, gradients are those of the
whole batch, and so are the losses in evidence; rows that are logged on the way have the mean over rank 0's
share. Every rank loads the whole batch of a loader of your own, and evaluates all held-out rows.

`shared_toggles("ddp", "ddp_weak")` adds ranks with a whole batch each, for weak scaling: an iteration then
trains on as many batches as there are ranks. `batch_size` is that of one rank; evaluations and checkpoints
stay where they are, counted in iterations. It needs `data`, as a loader of your own makes its own batches.
"""


def trainings() -> str:
    """Write the page of trainings in Markdown."""
    parts = [
        _OF_TRAININGS,
        f"## Parts\n\n{prose(Parts)}\n",
        table(("part", "value", "default", "is"), _parts()),
    ]
    parts += [_WRITTEN_OUT, f"## Training\n\n{prose(Training)}\n", table(("method", "does"), _methods())]
    parts += ["## Toggles\n", table(("toggle", "levels", "given", "does"), _toggles())]
    parts += ["## Modules\n", *(_module(module) for module in modules())]
    return "\n".join(parts)


def _parts() -> Iterator[tuple[str, ...]]:
    meaning = described(Parts)
    for one in fields(Parts):
        yield f"`{one.name}`", code(str(one.type)), _default_part(one), meaning[one.name]


def _default_part(one: Field[Any]) -> str:
    """Write the default of a part; functions by their names."""
    if one.default is MISSING:
        made = default_of(one)
        return "required" if made is MISSING else code(repr(made))
    if callable(one.default):
        named = one.default.__name__
        return "required" if named == "_no_loss" else code(named)
    return code(repr(one.default))


def _methods() -> Iterator[tuple[str, str]]:
    for name, value in vars(Training).items():
        if not name.startswith("_") and inspect.isfunction(value):
            yield code(f"{name}{signature(value)}"), summary(value)


def _toggles() -> Iterator[tuple[str, ...]]:
    for one in toggles.shared_toggles(*toggles.NAMES):
        given = "on request" if one.name in toggles.ON_REQUEST else "always"
        yield f"`{one.name}`", one.choices, given, one.doc


def modules() -> Iterator[ModuleType]:
    """Import the modules that the page describes."""
    for found in pkgutil.iter_modules(training.__path__):
        yield importlib.import_module(f"{training.__name__}.{found.name}")


def _module(module: ModuleType) -> str:
    """Write a module's heading, and the table of what it defines for others."""
    name = module.__name__.rpartition(".")[2]
    head = f"### {name}\n\n{summary(module)}\n"
    rows = [(code(f"{label}{signature(value)}"), summary(value)) for label, value in defined(module)]
    return "\n".join([head, table(("name", "does"), rows)]) if rows else head


def defined(module: ModuleType) -> list[tuple[str, Any]]:
    """List the functions and classes that a module defines for others, in the order of its source."""
    return [
        (name, value)
        for name, value in vars(module).items()
        if not name.startswith("_")
        and getattr(value, "__module__", None) == module.__name__
        and (inspect.isfunction(value) or inspect.isclass(value))
    ]


def described(value: Any, section: str = "Attributes") -> dict[str, str]:
    """Read what a docstring says of each name in a section, such as `Attributes` or `Parameters`."""
    pairs = [entry.split(" : ", maxsplit=1) for entry in _entries(value, section) if " : " in entry]
    return {name: one_line(text) for names, text in pairs for name in names.split(", ")}


def raised(value: Any) -> dict[str, str]:
    """Read which errors a docstring names, and when they are raised."""
    pairs = (entry.partition("\n") for entry in _entries(value, "Raises"))
    return {name: one_line(text) for name, _, text in pairs if text}


def _entries(value: Any, section: str) -> list[str]:
    found = re.search(rf"^{section}\n-+\n(.*?)(?=^\w+\n-+\n|\Z)", doc(value), re.MULTILINE | re.DOTALL)
    return re.split(r"\n(?=\S)", found.group(1).rstrip() if found else "")


def signature(value: Any) -> str:
    """Write the names of the arguments: types are in the source."""
    if inspect.isclass(value):
        return ""
    names = [name for name in inspect.signature(value).parameters if name != "self"]
    return f"({', '.join(names)})"


def table(headings: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """Write a table."""
    lines = [headings, ("---",) * len(headings), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines) + "\n"


def prose(value: Any) -> str:
    """Read a docstring up to its first section, with its paragraphs."""
    text = re.split(r"^\w+\n-+\n", doc(value), maxsplit=1, flags=re.MULTILINE)[0]
    return "\n\n".join(one_line(paragraph) for paragraph in text.strip().split("\n\n"))


def summary(value: Any) -> str:
    """Read the first paragraph of a docstring."""
    return one_line(doc(value).partition("\n\n")[0])


def doc(value: Any) -> str:
    """Read a docstring without its indentation."""
    return inspect.cleandoc(value.__doc__ or "")


def one_line(text: str) -> str:
    """Join the lines of a paragraph, for a cell of a table."""
    return " ".join(text.split()).replace("``", "`").replace("|", r"\|")


def code(text: str) -> str:
    """Write a name as code, for a cell of a table."""
    return "`" + text.replace("|", r"\|") + "`"


if __name__ == "__main__":
    print(trainings() if sys.argv[1:] == ["training"] else page(), end="")
