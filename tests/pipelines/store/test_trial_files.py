"""Files of one trial, as it reads and writes them itself, and whose clock its times are by."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from planned_sweeps import FAST, manifest, record

from perfsweep.pipelines.store import files, trial_files
from perfsweep.pipelines.store.records import Failure, Kind, Outcome, TrialSpec, read_rank_failures
from perfsweep.pipelines.store.trial_files import iteration_times, phase_times
from perfsweep.workloads.api import Evidence
from perfsweep.workloads.errors import RecordError


def spec(folder: Path) -> TrialSpec:
    plan = manifest()
    return plan.sweep.trial_spec(plan.arm(FAST), Kind.EVIDENCE, "p000", folder, replicate=2)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        (None, "does not exist; a trial is started with the path of its spec.json"),
        ({"schema_version": 0}, "has schema version 0, and this perfsweep reads version 1"),
        ({"schema_version": 1, "sweep": "toy"}, "does not fit the schema: "),
    ],
)
def test_what_is_no_specification_is_named(tmp_path: Path, values: dict | None, says: str) -> None:
    if values is not None:
        (tmp_path / "spec.json").write_bytes(files.json_object(values))
    with pytest.raises(RecordError, match=rf"spec\.json {says}"):
        trial_files.read_spec(tmp_path / "spec.json")


def test_of_ranks_the_first_that_ended_is_told_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for when, rank in ((20.0, 0), (10.0, 1), (30.0, 1)):
        monkeypatch.setattr("time.time", lambda when=when: when)
        failure = Failure(type="E", message=f"at {when:g}")
        trial_files.write_rank_failure(tmp_path, rank, Outcome.OOM, failure)
    found = [(outcome, failure.message) for outcome, failure in read_rank_failures(tmp_path)]
    assert found == [(Outcome.OOM, "at 10"), (Outcome.OOM, "at 20")]


def test_what_a_trial_is_doing_and_in_which_process(tmp_path: Path) -> None:
    assert (trial_files.read_status(tmp_path), trial_files.read_pid(tmp_path)) == (None, None)
    trial_files.write_status(tmp_path, "timing")
    assert (trial_files.read_status(tmp_path), trial_files.read_pid(tmp_path)) == ("timing", os.getpid())


@pytest.mark.parametrize("text", ["{", '{"pid": null}', '{"pid": "x"}'])
def test_a_status_that_cannot_be_read_is_unknown(tmp_path: Path, text: str) -> None:
    (tmp_path / "status.json").write_text(text)
    assert (trial_files.read_status(tmp_path), trial_files.read_pid(tmp_path)) == (None, None)


def test_evidence_reads_back_with_its_numbers_and_parts(tmp_path: Path) -> None:
    parts = {"losses": {"first": 1, "second": 1}}
    trial_files.write_evidence(tmp_path, Evidence({"losses": np.array([1.5, 2.0])}, {"count": 3}, parts))
    found = trial_files.read_evidence(tmp_path)
    assert {name: np.asarray(array).tolist() for name, array in found.tensors.items()} == {
        "losses": [1.5, 2.0]
    }
    assert (found.numbers, found.parts) == ({"count": 3.0}, parts)


def test_arrays_that_are_no_evidence_are_named(tmp_path: Path) -> None:
    files.write_arrays(tmp_path / "evidence.npz", {"losses": np.ones(2)})
    with pytest.raises(RecordError, match=r"evidence\.npz holds no evidence of ours"):
        trial_files.read_evidence(tmp_path)


@pytest.mark.parametrize(
    ("outcome", "left"),
    [
        ("ok", {"record.json", "iterations.npz", "log-n2.txt"}),
        ("failed", {"record.json", "iterations.npz", "log-n2.txt", "log.txt", "spec.json", "status.json"}),
    ],
)
def test_of_a_trial_that_ended_well_only_what_somebody_reads_is_kept(
    tmp_path: Path, outcome: str, left: set[str]
) -> None:
    for name in ("record.json", "iterations.npz", "log.txt", "spec.json", "status.json"):
        (tmp_path / name).touch()
    (tmp_path / "log-n2.txt").write_text("a warning")
    for _ in range(2):
        trial_files.shed(tmp_path, record(FAST, outcome=Outcome(outcome)))
    assert {path.name for path in tmp_path.iterdir()} == left


WALL = np.array([10, 20, 30])


@pytest.mark.parametrize(
    ("device", "times"),
    [(None, [10, 20, 30]), ([1, 0, 3], [1, 0, 3]), ([1, -1, 3], [20, 20, 20])],
    ids=["the host's", "the device's", "each its share where a mark is missing"],
)
def test_an_iteration_takes_what_its_device_says(device: list[int] | None, times: list[int]) -> None:
    arrays = {"wall_ns": WALL} | ({} if device is None else {"device_ns": np.array(device)})
    assert iteration_times(arrays).tolist() == times


@pytest.mark.parametrize(
    ("device", "owner", "times"),
    [(None, "host", [10, 20, 30]), ([1, 0, 3], "device", [1, 0, 3]), ([1, -1, 3], "host", [10, 20, 30])],
)
def test_a_phase_says_whose_time_it_is(device: list[int] | None, owner: str, times: list[int]) -> None:
    arrays = {"host_forward": WALL} | ({} if device is None else {"device_forward": np.array(device)})
    found = phase_times(arrays, "forward")
    assert (found[0], found[1].tolist()) == (owner, times)
