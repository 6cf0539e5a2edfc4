"""What a script prints is bounded, and its last words are heard."""

# Drives `program` of perfsweep.workloads.script.
from __future__ import annotations

import io
from pathlib import Path

import pytest
from loops import LOOP
from scripted import run, started

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.script import output


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
    ],
)
def test_a_script_that_ends_itself_is_quoted(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], text: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message), started(tmp_path, text):
        pass


def test_the_first_bytes_pass_at_once_and_the_last_when_it_ends() -> None:
    shown = io.BytesIO()
    bounded = output.Bounded(shown, 4, 3)
    assert [bounded.write(data) for data in (b"abc", b"defg", b"hi", b"jklmn")] == [3, 4, 2, 5]
    assert shown.getvalue() == b"abcd" and bounded.last == b"abcdefghijklmn"
    assert (bounded._left_out, bounded._late_bytes, [*bounded._late]) == (7, 3, [b"lmn"])
    bounded.end()
    bounded.write(b"opqr")  # of a logger that still has it
    assert shown.getvalue() == b"abcd\n... 0.0 MB left out ...\nlmnopq"
