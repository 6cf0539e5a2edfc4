"""Colours on a terminal, none in a pipe or where NO_COLOR is set, and names that stay names."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys

import pytest

PRINT = """
from pipelines.terminal import console_here
console = console_here()
console.print("my_module:Rocket: is fine", style="red")
console.print("x" * 150)
"""
COLOUR = re.compile(rb"\x1b\[[0-9;]*3[0-9]")


def environment(**extra: str) -> dict[str, str]:
    clean = {
        name: value
        for name, value in os.environ.items()
        if name not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS")
    }
    return {**clean, "TERM": "xterm-256color", **extra}


def on_a_terminal(**extra: str) -> bytes:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-c", PRINT]
    process = subprocess.Popen(command, stdout=theirs, stderr=theirs, stdin=theirs, env=environment(**extra))
    os.close(theirs)
    said = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # the other side is closed
            break
        if not piece:
            break
        said += piece
    os.close(ours)
    assert process.wait(timeout=120) == 0
    return said


def in_a_pipe(**extra: str) -> bytes:
    return subprocess.run(
        [sys.executable, "-c", PRINT], stdout=subprocess.PIPE, env=environment(**extra), check=True
    ).stdout


def test_a_terminal_has_colours() -> None:
    assert COLOUR.search(on_a_terminal())


def test_no_color_switches_them_off() -> None:
    assert not COLOUR.search(on_a_terminal(NO_COLOR="1"))


def test_a_pipe_gets_plain_text_of_a_hundred_columns() -> None:
    said = in_a_pipe()
    assert b"\x1b" not in said
    assert max(map(len, said.decode().splitlines())) == 100


@pytest.mark.parametrize("say", [on_a_terminal, in_a_pipe])
def test_a_name_between_colons_is_no_picture(say) -> None:
    assert b"my_module:Rocket: is fine" in say()
