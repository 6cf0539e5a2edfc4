"""Colours on a terminal, none in a pipe or where NO_COLOR is set, and names that stay names."""

from __future__ import annotations

import os
import pty
import re
import shlex
import subprocess
import sys
from tempfile import TemporaryFile

import pytest

from perfsweep.pipelines.terminal import shell_line

PRINT = """
from perfsweep.pipelines.terminal import console_here
console = console_here()
console.print("my_module:Rocket: is fine", style="red")
console.print("expected [batch, dim] and [/red]", style="red", highlight=False)
console.print("x" * 150)
"""
BESIDE = PRINT.replace("console_here", "error_console")
"""What a person is told while stdout belongs to a program."""
MEASURE = """
import time
from collections import Counter
from recorded import EPOCH_NS, NAIVE, build
from pathlib import Path
from tempfile import TemporaryDirectory
from perfsweep.pipelines.report import progress_display
from perfsweep.pipelines.store.records import Event, Kind, Outcome
from perfsweep.pipelines.terminal import console_here

with TemporaryDirectory() as place:
    manifest = build(Path(place) / "demo").manifest
ahead = Counter({(NAIVE.id, Kind.TIMING): 200})
event = Event(time=0, arm=NAIVE.id, kind=Kind.TIMING, round=0, outcome=Outcome.OK, seconds=1)
console = console_here()
progress_display.show_plan(console, manifest, 0, "runs/demo")
with progress_display.live(console, manifest, ahead) as progress:
    for _ in range(200):
        progress(event)
        time.sleep(0.005)
"""
"""A sweep of a second, as the command shows it."""

KERNEL = {"TERM": "xterm-color", "CLICOLOR": "1", "GIT_PAGER": "cat", "FORCE_COLOR": "1"}
"""What a notebook's kernel gives to the processes that it starts."""

COLOUR = re.compile(rb"\x1b\[[0-9;]*3[0-9]")


def environment(**extra: str) -> dict[str, str]:
    clean = {
        name: value
        for name, value in os.environ.items()
        if name not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "JPY_PARENT_PID")
    }
    return {**clean, "TERM": "xterm-256color", **extra}


def on_a_terminal(code: str = PRINT, **extra: str) -> bytes:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-c", code]
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


def in_a_pipe(code: str = PRINT, **extra: str) -> bytes:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, env=environment(**extra), check=True
    )
    return done.stdout + done.stderr


def test_a_terminal_has_colours() -> None:
    assert COLOUR.search(on_a_terminal())


def test_no_color_switches_them_off() -> None:
    assert not COLOUR.search(on_a_terminal(NO_COLOR="1"))


def in_a_file(**extra: str) -> bytes:
    with TemporaryFile() as file:
        subprocess.run([sys.executable, "-c", PRINT], stdout=file, env=environment(**extra), check=True)
        file.seek(0)
        return file.read()


@pytest.mark.parametrize("say", [in_a_pipe, in_a_file])
def test_a_pipe_and_a_file_get_plain_text_of_a_hundred_columns(say) -> None:
    said = say()
    assert b"\x1b" not in said
    assert max(map(len, said.decode().splitlines())) == 100


@pytest.mark.parametrize(("asked", "width"), [("60", 60), ("132", 132), ("wide", 100), ("0", 100)])
def test_columns_sets_the_width_of_a_pipe(asked: str, width: int) -> None:
    assert max(map(len, in_a_pipe(COLUMNS=asked).decode().splitlines())) == width


def test_columns_sets_the_width_beside_a_program_too() -> None:
    assert max(map(len, in_a_pipe(BESIDE, COLUMNS="60").decode().splitlines())) == 60


@pytest.mark.parametrize("say", [on_a_terminal, in_a_pipe])
def test_what_users_and_exceptions_write_is_no_picture_and_no_style(say) -> None:
    said = say()
    assert b"my_module:Rocket: is fine" in said
    assert b"expected [batch, dim] and [/red]" in said


def test_a_terminal_redraws_progress() -> None:
    assert on_a_terminal(MEASURE, PYTHONPATH=os.pathsep.join(sys.path)).count(b"\x1b[") > 20


@pytest.mark.parametrize("kernel", [{"JPY_PARENT_PID": "1"}, KERNEL], ids=["jupyter", "other front ends"])
def test_the_cell_of_a_notebook_gets_few_plain_lines_although_it_is_a_terminal(
    kernel: dict[str, str],
) -> None:
    said = on_a_terminal(MEASURE, PYTHONPATH=os.pathsep.join(sys.path), **kernel).decode()
    assert "\x1b" not in said
    assert said.count("\r") == said.count("\r\n")  # as a terminal ends its lines: none is redrawn
    assert said.splitlines()[-1] == "200 of 200 trials"
    assert len(said.splitlines()) < 10


def test_arguments_with_quotes_of_their_own_stay_readable() -> None:
    line = shell_line("run", "workload.args='-i names.txt -n 0'", "workload.args='$HOME a'")
    assert line.startswith("perfsweep run \"workload.args='-i names.txt -n 0'\" ")
    assert shlex.split(line)[2:] == ["workload.args='-i names.txt -n 0'", "workload.args='$HOME a'"]
