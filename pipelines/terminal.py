"""Where commands print: a terminal, or what somebody reads later: a file, or the cell of a notebook."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import IO

from rich.console import Console

WIDTH = 100
"""Columns where output goes to a file or a pipe, unless ``COLUMNS`` says otherwise."""

_KERNEL = {"TERM": "xterm-color", "CLICOLOR": "1", "GIT_PAGER": "cat"}
"""What ipykernel sets for the processes that it starts, whoever has started it."""


def console_here() -> Console:
    """The terminal as it is, or a file or a cell: 100 columns, no colours, no control characters.

    ``COLUMNS`` sets another width, and ``NO_COLOR`` switches colours off on a terminal too. Emoji codes are
    left alone: ``my_module:Rocket:`` is a name.
    """
    if in_cell(os.environ):
        return plain_console()
    console = Console(emoji=False)
    return console if console.is_terminal else Console(width=_columns(os.environ), emoji=False)


def error_console() -> Console:
    """Where a person is told something while stdout belongs to a program."""
    return Console(stderr=True, width=WIDTH, emoji=False)


def plain_console(file: IO[str] | None = None) -> Console:
    """A console that writes nothing but text, whatever the environment asks for."""
    plain = {"force_terminal": False, "force_jupyter": False, "color_system": None}
    return Console(file=file, width=_columns(os.environ), emoji=False, **plain)  # type: ignore[arg-type]


def _columns(environ: Mapping[str, str]) -> int:
    """Width of what is no terminal: ``COLUMNS`` where that is a number, as shells and their users set it."""
    asked = environ.get("COLUMNS", "")
    return int(asked) if asked.isdecimal() and int(asked) > 0 else WIDTH


def in_cell(environ: Mapping[str, str]) -> bool:
    """Whether this process was started by ``!`` in a notebook.

    It has a terminal then, and a colour is asked for, but the cell keeps every redraw of a line.
    """
    return "JPY_PARENT_PID" in environ or _KERNEL.items() <= environ.items()
