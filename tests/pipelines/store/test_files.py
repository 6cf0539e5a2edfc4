"""Files in one step: the first of several writers wins, and what is torn or refused is said."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from perfsweep.pipelines.store import files
from perfsweep.workloads.errors import RecordError


def test_what_holds_no_arrays_is_named_and_objects_that_python_must_run_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "a.npz").write_bytes(b"no zip")
    with pytest.raises(RecordError, match=r"a\.npz cannot be read as arrays"):
        files.read_arrays(tmp_path / "a.npz")
    np.savez(tmp_path / "a.npz", x=np.array([{"any": "code"}], dtype=object))
    with pytest.raises(RecordError, match="cannot be read as arrays"):
        files.read_arrays(tmp_path / "a.npz")


def test_an_array_that_a_damaged_length_hides_is_missed(tmp_path: Path) -> None:
    """A comment behind the first entry that is as long as the second: the zip stays readable."""
    file = tmp_path / "a.npz"
    files.write_arrays(file, {"x": np.arange(3), "times": np.ones(2)})
    content = bytearray(file.read_bytes())
    first, second = content.index(b"PK\1\2"), content.rindex(b"PK\1\2")
    content[first + 32] = content.index(b"PK\5\6") - second  # the length of the entry's comment
    file.write_bytes(content)
    assert list(np.load(file)) == ["x"]
    with pytest.raises(RecordError, match="is damaged: 1 of 2 arrays are left"):
        files.read_arrays(file)


def test_lines_are_appended_and_half_a_line_spoils_no_other(tmp_path: Path) -> None:
    file = tmp_path / "new" / "events.jsonl"
    files.append_line(file, {"a": 1})
    with file.open("ab") as out:
        out.write(b'{"a": 2')
    files.append_line(file, {"a": 3})
    files.append_line(file, {"a": 4})
    lines = file.read_bytes().splitlines()
    assert [files.parsed(lines[number], "a line")["a"] for number in (0, 2, 3)] == [1, 3, 4]
    assert lines[1] == b'{"a": 2' and len(lines) == 4


def test_lines_are_numbered_from_one_and_a_damaged_one_is_named(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    files.append_line(file, {"a": 1})
    files.append_line(file, {"a": 2})
    assert list(files.read_json_lines(file)) == [(1, {"a": 1}), (2, {"a": 2})]
    file.write_bytes(file.read_bytes() + b"[1]\n")
    with pytest.raises(RecordError, match=r"a\.jsonl line 3 is no JSON object"):
        list(files.read_json_lines(file))


def test_what_the_system_refuses_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    for write in (
        lambda: files.write_atomically(tmp_path / "a", b"x"),
        lambda: files.write_arrays(tmp_path / "a", {}),
    ):
        with pytest.raises(OSError, match="No space left on device") as caught:
            write()
        assert caught.value.filename == str(tmp_path / "a")
        assert not list(tmp_path.iterdir())


ODD = {
    "pipe": (os.mkfifo, "no plain file"),
    "device": (lambda file: file.symlink_to("/dev/zero"), "no plain file"),
    "folder": (lambda file: file.mkdir(), "Is a directory"),
    "loop": (lambda file: file.symlink_to(file.name), "symbolic links"),
}


READERS = (files.read_json, lambda file: [*files.read_json_lines(file)], files.read_arrays)


@pytest.mark.parametrize("read", READERS, ids=["object", "lines", "arrays"])
@pytest.mark.parametrize(("make", "says"), ODD.values(), ids=ODD)
def test_what_is_no_plain_file_is_named_and_not_waited_for(
    tmp_path: Path, read: Callable[[Path], object], make: Callable[[Path], None], says: str
) -> None:
    make(tmp_path / "odd")
    with pytest.raises(RecordError, match=f"odd cannot be read.*{says}"):
        read(tmp_path / "odd")


def test_a_file_that_would_fill_the_memory_is_not_read(tmp_path: Path) -> None:
    huge = tmp_path / "huge"
    with huge.open("wb") as content:
        content.truncate(files.MOST_BYTES + 1)
    with pytest.raises(RecordError, match="huge cannot be read: it has more than 1073741824 bytes"):
        files.read_json(huge)


def test_arrays_that_a_small_file_could_fill_the_memory_with_are_not_read(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "a.npz", x=np.zeros(2**20))
    with pytest.raises(RecordError, match="its arrays are compressed"):
        files.read_arrays(tmp_path / "a.npz")


def test_an_integer_that_no_table_has_room_for_is_damage(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"x": -99999999999999999999}')
    with pytest.raises(RecordError, match=r"a\.json is damaged: it holds an integer of"):
        files.read_json(tmp_path / "a.json")
