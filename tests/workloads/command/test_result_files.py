"""Whether a run wrote a file, and what tables of each kind hold."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from perfsweep.workloads.command import result_files
from perfsweep.workloads.command.result_files import require_fresh, state
from perfsweep.workloads.command.results import NoEvidence, digest

SECOND = 1_000_000_000
WRITTEN = 100 * SECOND


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "out.csv"
    path.write_text("1,2\n")
    os.utime(path, ns=(WRITTEN, WRITTEN))
    return path


def test_a_file_that_looks_as_before_may_be_a_tick_older_than_the_run_and_no_more(file: Path) -> None:
    for later_ns in (0, 10_000_000):
        require_fresh(file, state(file), WRITTEN + later_ns)
    with pytest.raises(NoEvidence, match="is older than the run, which has not written it"):
        require_fresh(file, state(file), WRITTEN + 10_000_001)


def test_a_file_that_differs_was_written_however_old_it_says_it_is(file: Path, tmp_path: Path) -> None:
    before, long_after = state(file), WRITTEN + 1000 * SECOND
    require_fresh(file, None, long_after)
    os.utime(file, ns=(WRITTEN - 1, WRITTEN - 1))
    require_fresh(file, before, long_after)
    (tmp_path / "new").write_text("1,2\n")
    os.utime(tmp_path / "new", ns=(WRITTEN, WRITTEN))
    (tmp_path / "new").replace(file)
    require_fresh(file, before, long_after)
    with pytest.raises(NoEvidence):
        require_fresh(file, state(file), long_after)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    assert state(tmp_path / "none") is None
    with pytest.raises(NoEvidence, match=r"the run has not written .*none$"):
        require_fresh(tmp_path / "none", None, 0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a,b\n1,2\n\n3,4\n", {"t/a": [1.0, 3.0], "t/b": [2.0, 4.0]}),
        ("1,2\n3,4\n", {"t/0": [1.0, 3.0], "t/1": [2.0, 4.0]}),
        ("1,b\n3,4\n", {"t/0": [1.0, 3.0], "t/1": digest(b'["b", "4"]').tolist()}),
        ("a,b\n1,x\n", {"t/a": [1.0], "t/b": digest(b'["x"]').tolist()}),
        ("", {}),
    ],
)
def test_columns_are_named_by_a_first_row_without_numbers(
    text: str, expected: dict[str, list[float]], tmp_path: Path
) -> None:
    (tmp_path / "t.csv").write_text(text)
    found = result_files.read(tmp_path / "t.csv", "t")
    assert {name: value.tolist() for name, value in found.items()} == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a": {"b": 1, "c": {"d": 2}}, "e": 3}', {"t/a.b": 1.0, "t/a.c.d": 2.0, "t/e": 3.0}),
        ("4", {"t/value": 4.0}),
    ],
)
def test_leaves_of_json_are_named_by_their_way(text: str, expected: dict[str, float], tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text(text)
    assert result_files.read(tmp_path / "t.json", "t") == expected


def test_arrays_have_the_files_name_and_other_files_a_digest(tmp_path: Path) -> None:
    np.save(tmp_path / "t.npy", [1, 2])
    np.savez(tmp_path / "t.npz", x=[3], y=[4])
    (tmp_path / "t.txt").write_text("text")
    assert result_files.read(tmp_path / "t.npy", "one")["one"].tolist() == [1, 2]
    assert list(result_files.read(tmp_path / "t.npz", "two")) == ["two/x", "two/y"]
    assert np.array_equal(result_files.read(tmp_path / "t.txt", "three")["three"], digest(b"text"))


DAMAGED = (b"", b"PK\x03\x04torn", b"\x93NUMPY\x01\x00v\x00{'descr'", b"\xff\xfe")


def test_a_file_that_is_damaged_is_no_evidence(tmp_path: Path) -> None:
    for suffix in (".npy", ".npz", ".json"):
        file = tmp_path / f"t{suffix}"
        for content in DAMAGED:
            file.write_bytes(content)
            with pytest.raises(NoEvidence, match=rf"^evidence\.file: .* cannot be read as \{suffix}: \S"):
                result_files.read(file, "t")


def test_an_archive_is_no_single_array_and_an_array_no_archive(tmp_path: Path) -> None:
    np.savez(tmp_path / "t.npz", x=[1])
    np.save(tmp_path / "t.npy", [1])
    swapped = tmp_path / "swapped"
    for name, other, said in (
        ("npy", "npz", "an archive of several arrays"),
        ("npz", "npy", "a single array"),
    ):
        file = swapped.with_suffix(f".{name}")
        file.write_bytes((tmp_path / f"t.{other}").read_bytes())
        with pytest.raises(NoEvidence, match=rf"it is {said}, whose name should end in \.{other}$"):
            result_files.read(file, "t")


def test_rows_of_unequal_length_are_no_table(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b\n1\n")
    with pytest.raises(NoEvidence, match=r"cannot be read as \.csv: its rows differ in length"):
        result_files.read(tmp_path / "t.csv", "t")
