"""The file that tells how far a pack is: what is half in it costs its own line, and no other."""

from __future__ import annotations

import os
from pathlib import Path

from perfsweep.pipelines.store import files
from perfsweep.pipelines.store.records import Event, Kind, Outcome, SweepFolder


def event(number: int) -> Event:
    return Event(time=1.0, arm="a", kind=Kind.TIMING, round=number, outcome=Outcome.OK, seconds=0.1)


def filled(path: Path, count: int) -> tuple[SweepFolder, Path]:
    folder = SweepFolder(path)
    for number in range(count):
        folder.append_event("p000", event(number))
    return folder, folder.events_file("p000")


def rounds(folder: SweepFolder) -> list[int | None]:
    return [one.round for one in folder.read_events("p000")[0]]


def test_a_line_after_one_that_was_cut_off_stands_by_itself(tmp_path: Path) -> None:
    folder, file = filled(tmp_path, 2)
    os.truncate(file, file.stat().st_size - 9)
    folder.append_event("p000", event(7))
    assert rounds(folder) == [0, 7]
    assert file.read_bytes().count(b"\n") == 3


def test_a_file_that_is_whole_gets_no_empty_lines(tmp_path: Path) -> None:
    file = tmp_path / "lines.jsonl"
    for number in range(3):
        files.append_line(file, {"n": number})
    assert len(file.read_bytes().splitlines()) == 3
    assert [values["n"] for _, values in files.read_json_lines(file)] == [0, 1, 2]


def test_damage_anywhere_in_it_keeps_nobody_from_reading_the_rest(tmp_path: Path) -> None:
    folder, file = filled(tmp_path, 4)
    lines = file.read_bytes().splitlines(keepends=True)
    for spoilt in (b"\x00\xff\n", b"[]\n", b"{}\n", lines[1][:20] + b"\n", b"\n"):
        file.write_bytes(lines[0] + spoilt + lines[2] + lines[3][:-5])
        assert rounds(folder) == [0, 2]


def test_a_pack_that_has_noted_nothing_has_no_events(tmp_path: Path) -> None:
    assert SweepFolder(tmp_path).read_events("p000") == ([], 0)
