"""Files in one step, and those of one trial: what is torn, foreign or refused is said."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from planned_sweeps import FAST, manifest, record

from perfsweep import checksums
from perfsweep.pipelines.store import files, trial_files
from perfsweep.pipelines.store.records import Failure, Kind, Outcome, TrialSpec, read_rank_failures
from perfsweep.pipelines.store.trial_files import iteration_times, phase_times
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


@pytest.mark.parametrize("half", [b'{"a": 2', b'{"a": 2\0\0'], ids=["cut", "never written to the disk"])
def test_lines_are_appended_and_half_a_line_spoils_no_other(tmp_path: Path, half: bytes) -> None:
    file = tmp_path / "new" / "events.jsonl"
    checksums.append_line(file, {"a": 1})
    with file.open("ab") as out:
        out.write(half)
    checksums.append_line(file, {"a": 3})
    checksums.append_line(file, {"a": 4})
    lines = file.read_bytes().splitlines()
    assert [files.parsed(lines[number], "a line")["a"] for number in (0, 2, 3)] == [1, 3, 4]
    assert lines[1] == half and len(lines) == 4


def test_lines_are_numbered_from_one_and_a_damaged_one_is_named(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    checksums.append_line(file, {"a": 1})
    checksums.append_line(file, {"a": 2})
    assert list(files.read_json_lines(file)) == [(1, {"a": 1}), (2, {"a": 2})]
    file.write_bytes(file.read_bytes() + b"[1]\n")
    with pytest.raises(RecordError, match=r"a\.jsonl line 3 is no JSON object"):
        list(files.read_json_lines(file))


def test_of_several_writers_of_one_file_the_first_wins_where_there_are_no_links_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*paths: object) -> None:
        raise OSError(errno.EPERM, "no hard links here")

    for name in ("linked", "claimed"):
        assert [files.write_once(tmp_path / name, word) for word in (b"1", b"2")] == [True, False]
        assert (tmp_path / name).read_bytes() == b"1"
        monkeypatch.setattr(os, "link", refuse)
    (tmp_path / ".died.claim").touch()
    assert not files.write_once(tmp_path / "died", b"3"), "who claimed it may still write"
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"linked", "claimed", ".claimed.claim", ".died.claim"}


def test_what_breaks_off_while_it_is_written_leaves_the_old_file_alone(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")
    with pytest.raises(ZeroDivisionError), files.replaced(tmp_path / "a") as fresh:
        fresh.write_text("half")
        raise ZeroDivisionError
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("a", "old")]


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
    ("device", "times", "owner"),
    [(None, [10, 20, 30], "host"), ([1, 0, 3], [1, 0, 3], "device"), ([1, -1, 3], [20, 20, 20], "host")],
    ids=["the host's", "the device's", "each its share where a mark is missing"],
)
def test_iterations_and_phases_take_what_the_device_says(device: Any, times: list[int], owner: str) -> None:
    arrays = {"wall_ns": WALL, "host_forward": WALL}
    if device is not None:
        arrays |= dict.fromkeys(["device_ns", "device_forward"], np.array(device))
    assert iteration_times(arrays).tolist() == times
    found = phase_times(arrays, "forward")
    assert (found[0], found[1].tolist()) == (owner, times if owner == "device" else [10, 20, 30])
