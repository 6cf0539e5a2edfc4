"""Evidence of a command: numbers and texts that it prints, files that it writes."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from perfsweep.workloads.api import NullClock
from perfsweep.workloads.command.results import NoEvidence
from perfsweep.workloads.command.workload import Command

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


def test_numbers_of_the_evidence_are_there_in_every_trial(ran: Make) -> None:
    workload = ran(
        printing("score=3", '{"loss": 2, "word": "a"}'),
        evidence={"pattern": "score=(?P<score>.)", "json": ["loss", "word"]},
    )
    assert workload.numbers() == {"loss": 2, "score": 3}


def test_the_program_may_say_how_many_units_it_did(ran: Make) -> None:
    workload = ran(printing("did 40 images"), evidence={"pattern": r"did (?P<image>\d+)"}, units="image")
    assert (workload.progress(), workload.unit) == (40, "image")
    workload = ran("true", units="2.5")
    assert (workload.progress(), workload.unit) == (2.5, "unit")


@pytest.mark.parametrize(
    ("evidence", "message"),
    [
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
