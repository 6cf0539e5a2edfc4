"""What a run reports in its output: values, last lines and matches, and what is said where there are none."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from perfsweep.workloads.command import results
from perfsweep.workloads.command.output import Kept
from perfsweep.workloads.command.results import (
    NoEvidence,
    as_value,
    digest,
    from_output,
    holds_several,
    shown_name,
)
from perfsweep.workloads.declarations import Check, Comparator
from perfsweep.workloads.errors import ConfigError


def written(text: str, limit: int = 2**20) -> Kept:
    kept = Kept(limit)
    for line in text.splitlines(keepends=True):
        kept.add(line.encode())
    return kept


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (3, 3.0),
        (True, 1.0),
        ("2.5", 2.5),
        ("1e-3", 1e-3),
        ([1, 2], [1.0, 2.0]),
        ([[True, False]], [[1.0, 0.0]]),
    ],
)
def test_numbers_are_numbers_also_where_they_are_written_as_text(value: Any, expected: Any) -> None:
    found = as_value(value)
    assert (found if isinstance(found, float) else found.tolist()) == expected


@pytest.mark.parametrize(
    ("value", "content"),
    [
        ("word", b"word"),
        (None, b"null"),
        ([], b"[]"),
        ([[1], [2, 3]], b"[[1], [2, 3]]"),
        (["a", "b"], b'["a", "b"]'),
        ([{"b": 1, "a": 2}], b'[{"a": 2, "b": 1}]'),
    ],
)
def test_anything_else_is_a_digest(value: Any, content: bytes) -> None:
    found = as_value(value)
    assert isinstance(found, np.ndarray)
    assert found.dtype == np.uint8
    assert np.array_equal(found, digest(content))
    assert found.shape == (32,)


def test_a_key_with_a_dot_may_be_one_key() -> None:
    output = written(json.dumps({"a.b": 1, "a": {"b": 2, "c": 3}}))
    assert from_output(results.read({"json": ["a.b", "a.c"]}), output) == {"a.b": 1.0, "a.c": 3.0}


@pytest.mark.parametrize(
    ("key", "text"),
    [("c", '{"a": 1, "b": 2}'), ("a.c", '{"a": {"b": 1}, "b": 2}'), ("a.b", '{"a": 1, "b": 2}')],
)
def test_a_key_that_is_missing_is_named_beside_those_that_are_there(key: str, text: str) -> None:
    with pytest.raises(NoEvidence, match=f"the last JSON line has no {key}; it has: a, b$"):
        from_output(results.read({"json": key}), written(text))


@pytest.mark.parametrize(("limit", "end"), [(2**20, ""), (1, r" \(looked at: the last 0 MiB of it\)")])
@pytest.mark.parametrize(
    ("declared", "sentence"),
    [
        ({"json": "loss"}, "evidence.json: no line of the output is a JSON object"),
        ({"pattern": "(?P<a>x)"}, r"evidence.pattern: nothing in the output matches \(\?P<a>x\)"),
    ],
)
def test_where_nothing_is_found_it_is_said_how_much_was_looked_at(
    declared: dict[str, str], sentence: str, limit: int, end: str
) -> None:
    sources, output = results.read(declared), written("[1]\n{broken\nbye\n", limit)
    with pytest.raises(NoEvidence, match=f"{sentence}{end}$"):
        from_output(sources, output)


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
    ("file", "several"),
    [("a.npz", True), ("a.json", True), ("a.csv", True), ("a.npy", False), ("a.txt", False), ("csv", False)],
)
def test_tables_and_archives_hold_several_pieces(file: str, several: bool) -> None:
    assert holds_several(file) == several
    assert shown_name("{scratch}/" + file) == file


@pytest.mark.parametrize(
    ("declared", "sentence"),
    [
        (
            {"jsn": "a"},
            "^here.jsn is unknown; did you mean json\\? evidence has file, json, pattern, output$",
        ),
        ({"zzz": "a"}, "^here.zzz is unknown; evidence has file"),
        ({"output": "yes"}, "^here.output=yes must be true or false$"),
        ({"json": [""]}, "^here.json must be a text or a list of texts$"),
        ({"json": 3}, "^here.json must be a text or a list of texts$"),
        ({"file": [1]}, "^here.file must be a text"),
        ({"pattern": "("}, r"^here.pattern: \( is no regular expression: "),
        ({"pattern": "(x)"}, r"^here.pattern: \(x\) names nothing; write what it finds as \(\?P<name>"),
        ({"json": ["a", "b"], "pattern": "(?P<b>.)"}, "^here names b twice"),
        ({"json": "output", "output": True}, "^here names output twice"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_its_place(declared: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        results.read(declared, "here")
