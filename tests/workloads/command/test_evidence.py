"""Evidence of a command: numbers and texts that it prints, files that it writes."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perfsweep.workloads.api import NullClock
from perfsweep.workloads.command import result_files, results
from perfsweep.workloads.command.results import NoEvidence
from perfsweep.workloads.command.workload import Command
from perfsweep.workloads.errors import ConfigError

Make = Callable[..., Command]


def printing(*lines: str) -> str:
    return "printf '%s\\n' " + " ".join(f"'{line}'" for line in lines)


def test_the_last_json_line_counts_and_dots_lead_into_objects(ran: Make) -> None:
    lines = (
        '{"loss": 9}',
        "",
        '{"loss": 0.5, "at": {"k": [1, 2]}, "word": "a", "ok": true}',
        "{broken",
        "bye",
    )
    found = ran(printing(*lines), evidence={"json": ["loss", "at.k", "word", "ok"]}).evidence()
    assert found.numbers == {"loss": 0.5, "ok": 1.0}
    assert found.tensors["at.k"].tolist() == [1, 2]
    assert found.tensors["word"].dtype == np.uint8 and found.tensors["word"].shape == (32,)


def test_the_last_match_of_a_pattern_counts_line_by_line(ran: Make) -> None:
    pattern = r"^step (?P<step>\d+): (?P<word>\w+)$"
    found = ran(printing("step 1: a", "step 2: b", "a step 3: c"), evidence={"pattern": pattern}).evidence()
    assert found.numbers == {"step": 2}
    assert np.array_equal(found.tensors["word"], results.digest(b"b"))


def test_numbers_of_the_evidence_are_there_in_every_trial(ran: Make) -> None:
    workload = ran(
        printing("score=3", '{"loss": 2, "word": "a"}'),
        evidence={"pattern": "score=(?P<score>.)", "json": ["loss", "word"]},
    )
    assert workload.numbers() == {"loss": 2, "score": 3}


def test_the_output_as_a_whole_may_be_the_evidence(ran: Make) -> None:
    one, same, other = (
        ran(f"echo {word}", evidence={"output": True}).evidence().tensors["output"] for word in "aab"
    )
    assert np.array_equal(one, same) and not np.array_equal(one, other)


def test_the_program_may_say_how_many_units_it_did(ran: Make) -> None:
    workload = ran(printing("did 40 images"), evidence={"pattern": r"did (?P<image>\d+)"}, units="image")
    assert (workload.progress(), workload.unit) == (40, "image")
    workload = ran("true", units="2.5")
    assert (workload.progress(), workload.unit) == (2.5, "unit")


@pytest.mark.parametrize(
    ("evidence", "message"),
    [
        ({"json": "loss"}, "^evidence.json: no line of the output is a JSON object$"),
        ({"pattern": "(?P<a>z)"}, r"^evidence.pattern: nothing in the output matches \(\?P<a>z\)$"),
        ({"file": "out.npy"}, r"^evidence.file: the run has not written /\S+/out.npy$"),
        (
            {"file": "old.txt"},
            r"^evidence.file: /\S+/old.txt is older than the run, which has not written it$",
        ),
        ({"file": "{scratch}/x"}, r"has not written /\S+/scratch/run/x$"),
    ],
)
def test_evidence_that_is_not_there_is_named(
    ran: Make, tmp_path: Path, evidence: dict[str, str], message: str
) -> None:
    (tmp_path / "old.txt").write_text("from last year")
    os.utime(tmp_path / "old.txt", (1e9, 1e9))
    workload = ran("echo hello", evidence=evidence)
    with pytest.raises(NoEvidence, match=message):
        workload.evidence()


def test_a_missing_key_is_named_beside_those_that_are_there(ran: Make) -> None:
    workload = ran(printing('{"loss": 1, "accuracy": 2}'), evidence={"json": "los"})
    with pytest.raises(NoEvidence, match=r"the last JSON line has no los; it has: loss, accuracy$"):
        workload.numbers()


def test_a_file_counts_as_written_by_each_run_that_writes_it(make: Make) -> None:
    """However fast: two runs within a tick of the kernel's clock leave a file with the same time."""
    workload = make("cp source {scratch}/../kept", evidence={"file": "scratch/kept"})
    (workload._folder / "source").write_text("same")
    digests = []
    for _ in range(3):
        workload.step(NullClock())
        digests.append(workload.evidence().tensors["scratch/kept"].tobytes())
        workload.reset()
    assert len(set(digests)) == 1


FILES: list[tuple[str, Any, dict[str, Any]]] = [
    ("a.npy", lambda file: np.save(file, np.arange(3.0)), {"a.npy": [0, 1, 2]}),
    ("a.npz", lambda file: np.savez(file, w=np.ones(2)), {"a.npz/w": [1, 1]}),
    (
        "a.json",
        lambda file: file.write_text('{"m": {"loss": 2}, "k": [1, 2]}'),
        {"a.json/m.loss": 2, "a.json/k": [1, 2]},
    ),
    ("a.csv", lambda file: file.write_text("x,y\n1,2\n3,4\n"), {"a.csv/x": [1, 3], "a.csv/y": [2, 4]}),
    ("b.csv", lambda file: file.write_text("1,2\n3,4\n"), {"b.csv/0": [1, 3], "b.csv/1": [2, 4]}),
]


@pytest.mark.parametrize(("name", "write", "expected"), FILES)
def test_arrays_and_tables_are_compared_by_value(
    tmp_path: Path, name: str, write: Callable[[Path], Any], expected: dict[str, Any]
) -> None:
    write(tmp_path / name)
    found = result_files.read(tmp_path / name, name)
    assert {key: np.asarray(value).tolist() for key, value in found.items()} == expected


def test_other_files_and_columns_of_words_are_compared_by_content(tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(b"\0\1")
    assert np.array_equal(result_files.read(tmp_path / "model.bin", "m")["m"], results.digest(b"\0\1"))
    (tmp_path / "t.csv").write_text("name,n\nann,1\n")
    assert result_files.read(tmp_path / "t.csv", "t.csv")["t.csv/name"].shape == (32,)


@pytest.mark.parametrize("name", ["a.npy", "a.npz", "a.json", "a.csv"])
def test_a_file_that_is_not_what_it_is_called_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("junk,\n{")
    with pytest.raises(NoEvidence, match=rf"^evidence.file: \S+/{name} cannot be read as \.{name[2:]}"):
        result_files.read(tmp_path / name, name)


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ({"files": "a"}, r"evidence\.files is unknown; did you mean file\? evidence has file, json"),
        ({"file": 3}, r"evidence\.file must be a text or a list of texts"),
        ({"pattern": "(?P<a>"}, "is no regular expression"),
        ({"pattern": "score=(.*)"}, r"score=\(\.\*\) names nothing; write what it finds as"),
        ({"json": ["a"], "pattern": "(?P<a>x)"}, "evidence names a twice"),
        ({"output": "yes"}, r"evidence\.output=yes must be true or false"),
    ],
)
def test_evidence_that_cannot_be_meant_is_refused(declared: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        results.read(declared)


def test_each_piece_of_evidence_is_a_check_and_files_of_several_a_family() -> None:
    declared = {"file": ["a.npz", "{scratch}/b.bin"], "json": "loss", "pattern": "(?P<s>.)", "output": True}
    assert [check.name for check in results.read(declared).checks] == [
        "loss",
        "s",
        "a.npz/*",
        "b.bin",
        "output",
    ]
