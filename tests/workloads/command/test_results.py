"""What a run reports in its output and its files, and what is said where there is nothing."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perfsweep.workloads.command import results
from perfsweep.workloads.command.program import Kept
from perfsweep.workloads.command.results import NoEvidence, digest, file_state, from_output, require_fresh
from perfsweep.workloads.declarations import Check, Comparator
from perfsweep.workloads.errors import ConfigError


def written(text: str, limit: int = 2**20) -> Kept:
    kept = Kept(limit)
    for line in text.splitlines(keepends=True):
        kept.add(line.encode())
    return kept


def test_a_key_with_a_dot_may_be_one_key() -> None:
    output = written(json.dumps({"a.b": 1, "a": {"b": 2, "c": 3}}))
    assert from_output(results.read({"json": ["a.b", "a.c"]}), output) == {"a.b": 1.0, "a.c": 3.0}


@pytest.mark.parametrize(("key", "text"), [("c", '{"a": 1, "b": 2}'), ("a.b", '{"a": 1, "b": 2}')])
def test_a_key_that_is_missing_is_named_beside_those_that_are_there(key: str, text: str) -> None:
    with pytest.raises(NoEvidence, match=f"the last JSON line has no {key}; it has: a, b$"):
        from_output(results.read({"json": key}), written(text))


def test_patterns_and_keys_are_reported_and_files_and_output_are_checked() -> None:
    sources = results.read(
        {
            "file": ["{scratch}/a.csv", "b.npy"],
            "json": "loss",
            "pattern": ["^(?P<x>.)(?P<y>.)$", "(?P<z>.)"],
            "output": True,
        }
    )
    assert sources.reported == ("loss", "x", "y", "z")
    assert sources.checks == (
        *map(Check, ("loss", "x", "y", "z", "a.csv/*", "b.npy")),
        Check("output", Comparator.IDENTICAL),
    )
    assert results.read({}).checks == ()
    assert from_output(results.read({"pattern": "^(?P<x>.)$"}), written("1\n22\n3\n44")) == {"x": 3.0}


@pytest.mark.parametrize(
    ("declared", "sentence"),
    [
        (
            {"jsn": "a"},
            "^here.jsn is unknown; did you mean json\\? evidence has file, json, pattern, output$",
        ),
        ({"output": "yes"}, "^here.output=yes must be true or false$"),
        ({"json": [""]}, "^here.json must be a text or a list of texts$"),
        ({"pattern": "("}, r"^here.pattern: \( is no regular expression: "),
        ({"pattern": "(x)"}, r"^here.pattern: \(x\) names nothing; write what it finds as \(\?P<name>"),
        ({"json": ["a", "b"], "pattern": "(?P<b>.)"}, "^here names b twice"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_its_place(declared: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        results.read(declared, "here")


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
        require_fresh(file, file_state(file), WRITTEN + later_ns)
    with pytest.raises(NoEvidence, match="is older than the run, which has not written it"):
        require_fresh(file, file_state(file), WRITTEN + 10_000_001)


def test_a_file_that_differs_was_written_however_old_it_says_it_is(file: Path, tmp_path: Path) -> None:
    before, long_after = file_state(file), WRITTEN + 1000 * SECOND
    require_fresh(file, None, long_after)
    os.utime(file, ns=(WRITTEN - 1, WRITTEN - 1))
    require_fresh(file, before, long_after)
    (tmp_path / "new").write_text("1,2\n")
    os.utime(tmp_path / "new", ns=(WRITTEN, WRITTEN))
    (tmp_path / "new").replace(file)
    require_fresh(file, before, long_after)
    with pytest.raises(NoEvidence):
        require_fresh(file, file_state(file), long_after)


def test_arrays_have_the_files_name_and_other_files_a_digest(tmp_path: Path) -> None:
    np.save(tmp_path / "t.npy", [1, 2])
    np.savez(tmp_path / "t.npz", x=[3], y=[4])
    (tmp_path / "t.txt").write_text("text")
    assert results.read_file(tmp_path / "t.npy", "one")["one"].tolist() == [1, 2]
    assert list(results.read_file(tmp_path / "t.npz", "two")) == ["two/x", "two/y"]
    assert np.array_equal(results.read_file(tmp_path / "t.txt", "three")["three"], digest(b"text"))


DAMAGED = (b"", b"PK\x03\x04torn", b"\x93NUMPY\x01\x00v\x00{'descr'", b"\xff\xfe")


def test_a_file_that_is_damaged_is_no_evidence(tmp_path: Path) -> None:
    for suffix in (".npy", ".npz", ".json"):
        file = tmp_path / f"t{suffix}"
        for content in DAMAGED:
            file.write_bytes(content)
            with pytest.raises(NoEvidence, match=rf"^evidence\.file: .* cannot be read as \{suffix}: \S"):
                results.read_file(file, "t")
