"""Where commands print: a terminal, or a file that somebody reads later."""

from __future__ import annotations

from rich.console import Console

WIDTH = 100
"""Columns where output goes to a file or a pipe."""


def console_here() -> Console:
    """The terminal as it is, or a file: 100 columns, no colours, no control characters.

    ``NO_COLOR`` switches colours off on a terminal too. Emoji codes are left alone: ``my_module:Rocket:`` is
    a name.
    """
    console = Console(emoji=False)
    return console if console.is_terminal else Console(width=WIDTH, emoji=False)
