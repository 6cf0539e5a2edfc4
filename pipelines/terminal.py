"""Where commands print: a terminal, a file to read later, or the cell of a notebook."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from perfsweep.workloads.errors import harmless

WIDTH = 100
"""Columns where output goes to a file or a pipe, unless ``COLUMNS`` says otherwise."""

_AS_TEXT: dict[str, Any] = {"emoji": False, "markup": False, "highlight": False}
"""Colons and brackets are what users and their exceptions wrote: ``my_module:Rocket:``, ``[batch, dim]``.
Colours are for what is bad or good, and not for every number."""

_KERNEL = {"TERM": "xterm-color", "CLICOLOR": "1", "GIT_PAGER": "cat"}
"""What ipykernel sets for the processes that it starts."""


class _TextConsole(Console):
    """A console whose text steers no terminal; colours and movements are its own."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield the pieces of something to print."""
        for piece in super().render(renderable, options):
            yield piece if piece.control else Segment(harmless(piece.text), piece.style)


def console_here() -> Console:
    """The terminal as it is, or a file or a cell: 100 columns, no colours, no control characters.

    ``COLUMNS`` sets another width, and ``NO_COLOR`` switches colours off on a terminal too. What is printed
    is text, in which neither emoji codes nor brackets mean anything.
    """
    return plain_console() if in_cell(os.environ) else _console()


def error_console() -> Console:
    """Where the user reads messages while stdout belongs to a program."""
    return _console(stderr=True)


def _console(**where: Any) -> Console:
    console = _TextConsole(**_AS_TEXT, **where)
    return console if console.is_terminal else _TextConsole(width=_columns(os.environ), **_AS_TEXT, **where)


def plain_console(file: IO[str] | None = None) -> Console:
    """A console that writes nothing but text, whatever the environment asks for."""
    plain = {"force_terminal": False, "force_jupyter": False, "color_system": None, **_AS_TEXT}
    return _TextConsole(file=file, width=_columns(os.environ), **plain)


def _columns(environ: Mapping[str, str]) -> int:
    """Width of what is no terminal: ``COLUMNS`` where that is a number, as shells and their users set it."""
    asked = environ.get("COLUMNS", "")
    return int(asked) if asked.isdecimal() and int(asked) > 0 else WIDTH


def in_cell(environ: Mapping[str, str]) -> bool:
    """Whether this process was started by ``!`` in a notebook.

    It has a terminal then, and a colour is asked for, but the cell keeps every redraw of a line.
    """
    return "JPY_PARENT_PID" in environ or _KERNEL.items() <= environ.items()


def bold(name: str, rest: str) -> Text:
    """A line that begins with a name in bold."""
    return Text.assemble((name, "bold"), rest)


def shell_line(*words: str | Path) -> str:
    """What a user types into a shell to run this command, with quotes where a word needs them."""
    return " ".join(["perfsweep", *(shell_word(str(word)) for word in words)])


def shell_word(word: str) -> str:
    """Quote a word for a shell, readably."""
    plain = "'" not in word or any(one in word for one in '"$`\\!')
    return shlex.quote(word) if plain else f'"{word}"'


def whole_table(table: Table, *headings: str) -> Table:
    """Give a table columns that cut no word off: it goes on in the next line where a terminal is narrow."""
    for heading in headings:
        table.add_column(heading, overflow="fold")
    return table
