"""What a script prints is bounded, and its last words are heard."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from loops import LOOP
from scripted import run, started

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.script import output
from perfsweep.workloads.script.output import Bounded


class Target(io.BytesIO):
    """Remembers what reached it."""


def test_little_output_passes_at_once_and_whole() -> None:
    target = Target()
    stream = Bounded(target, 100, 10)
    stream.write(b"some")
    assert target.getvalue() == b"some"
    stream.end()
    assert target.getvalue() == b"some"


def test_of_much_output_the_first_and_the_last_part_are_kept() -> None:
    target = Target()
    stream = Bounded(target, 100, 50)
    for number in range(100_000):
        stream.write(f"line {number}\n".encode())
    assert len(target.getvalue()) == 100
    stream.end()
    shown = target.getvalue().decode()
    assert shown.startswith("line 0\n")
    assert shown.endswith("line 99999\n")
    assert shown.count("MB left out") == 1
    assert len(shown) < 300


def test_one_huge_write_is_bounded_too() -> None:
    target = Target()
    stream = Bounded(target, 100, 50)
    stream.write(b"a" * 1000 + b"end")
    stream.end()
    assert target.getvalue().startswith(b"a" * 100)
    assert target.getvalue().endswith(b"aend")
    assert len(target.getvalue()) < 250


def test_nothing_is_said_to_be_missing_where_nothing_is() -> None:
    target = Target()
    stream = Bounded(target, 4, 50)
    stream.write(b"all of it")
    stream.end()
    assert target.getvalue() == b"all of it"


def test_a_script_that_prints_without_end_does_not_fill_the_disk(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output.Output.__init__, "__defaults__", (1000, 500))
    with started(tmp_path, LOOP + "    print('x' * 5000, flush=True); print('last', number)\n") as script:
        run(script, 4)
    shown = capfd.readouterr().out
    assert len(shown) < 2500
    assert shown.count("left out") == 1
    assert shown.rstrip().endswith("last 3") or shown.rstrip().endswith("last 4")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import sys; sys.exit('no data in here')", "with status 1, .*: no data in here"),
        ("import sys; print('gone', file=sys.stderr); sys.exit(3)", "with status 3, .*: gone"),
        ("raise SystemExit", "with status 0, before its iterations were measured$"),
        (
            "import argparse as a; p = a.ArgumentParser(); p.add_argument('x'); p.parse_args()",
            "with status 2, .*error: the following arguments are required: x",
        ),
    ],
)
def test_a_script_that_ends_itself_is_quoted(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], text: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message), started(tmp_path, text):
        pass


def test_a_process_that_the_script_forks_does_not_become_a_trial(tmp_path: Path) -> None:
    text = f"import os\nchild = os.fork()\n{LOOP}\nif child: print(os.waitpid(child, 0))"
    marker = tmp_path / "both"
    with started(tmp_path, text) as script:
        run(script, 3)
        with marker.open("a") as file:  # the child would come here as well
            file.write("once\n")
    assert marker.read_text() == "once\n"
