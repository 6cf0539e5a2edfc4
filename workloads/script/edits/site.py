"""A call of the script that a toggle acts on: where it is written, and what was seen of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

LOADER, OPTIMIZER, RESET, FORWARD, COPY, BACK = "loader", "optimizer", "reset", "forward", "copy", "back"
"""Kinds of calls: a DataLoader or an optimiser is made, gradients are reset, a model is called, a tensor in
pinned memory is copied to the device, or one from there to the host."""


@dataclass(frozen=True)
class Line:
    """A line of the user's that was running: its file, its function by the function's first line, itself.

    `scope` is 0 at the top of a file.
    """

    file: str
    scope: int
    line: int


@dataclass(frozen=True)
class Holder:
    """A name that a model has: ``model``, or ``self.model``, where a line could use it."""

    name: str
    at: Line


@dataclass(frozen=True)
class Site:
    """A call that was seen.

    Attributes
    ----------
    what : kind of the call
    called : name of the class or function
    file, line : of the caller; a file such as ``<string>`` is none
    end : line and column, in bytes, where the call ends; None: not known
    lines : the user's lines that led to it, the innermost first; the caller's own only if it is the user's
    positions : names of the arguments that may be given by position
    given : names of the arguments that were passed
    options : implementations that an optimiser can be asked for
    workers : processes that a loader was asked for
    device : type of the device that a model is on
    tensor : whether a model returned a tensor
    images : places or names of a model's arguments that were images, tensors of four dimensions
    holders : names of a model, the innermost first
    """

    what: str
    called: str
    file: str
    line: int
    end: tuple[int, int] | None = None
    lines: tuple[Line, ...] = ()
    positions: tuple[str, ...] = ()
    given: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    workers: int = 0
    device: str = ""
    tensor: bool = False
    images: tuple[int | str, ...] = ()
    holders: tuple[Holder, ...] = ()

    @property
    def is_users(self) -> bool:
        """Whether the call itself is written in a file of the user's."""
        return bool(self.lines) and (self.lines[0].file, self.lines[0].line) == (self.file, self.line)


def read(written: Mapping[str, Any]) -> Site:
    """A site from plain data, such as JSON."""
    lines = tuple(Line(**one) for one in written["lines"])
    holders = tuple(Holder(one["name"], Line(**one["at"])) for one in written["holders"])
    plain = {name: tuple(value) if isinstance(value, list) else value for name, value in written.items()}
    return Site(**{**plain, "lines": lines, "holders": holders})
