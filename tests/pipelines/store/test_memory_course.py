"""Memory along a slice: peaks of phases, and the file that keeps it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from perfsweep.pipelines.store.files import write_arrays
from perfsweep.pipelines.store.profiles import MemoryCourse, read_course, write_course
from perfsweep.workloads.errors import RecordError

COURSE = MemoryCourse(
    allocated_ns=np.array([0, 10, 20, 30, 40]),
    allocated_bytes=np.array([5, 9, 3, 7, 1]),
    sampled_ns=np.array([0, 40]),
    reserved_bytes=np.array([0, 16]),
    host_bytes=np.array([100, 120]),
    iteration_ns=np.array([40]),
    phase_names=np.array(["data", "forward", "data", "update"]),
    phase_start_ns=np.array([15, 20, 31, 45]),
    phase_end_ns=np.array([19, 30, 39, 50]),
)


def test_a_phase_holds_what_was_held_when_it_began_and_the_highest_comes_first() -> None:
    assert list(COURSE.phase_peaks().items()) == [("data", 9), ("forward", 7), ("update", 1)]


def test_a_change_at_the_end_of_a_phase_is_in_it_and_one_at_its_beginning_replaces_what_was() -> None:
    edges = replace(
        COURSE, phase_names=np.array(["a"]), phase_start_ns=np.array([20]), phase_end_ns=np.array([29])
    )
    assert edges.phase_peaks() == {"a": 3}
    assert replace(edges, phase_end_ns=np.array([30])).phase_peaks() == {"a": 7}


def test_a_phase_before_the_first_change_holds_nothing() -> None:
    early = replace(
        COURSE,
        allocated_ns=COURSE.allocated_ns + 100,
        phase_names=np.array(["a"]),
        phase_start_ns=np.array([0]),
        phase_end_ns=np.array([9]),
    )
    assert early.phase_peaks() == {"a": 0}


def test_the_peak_is_the_first_time_that_most_was_held() -> None:
    assert COURSE.peak_at() == (9, 10)
    nothing = replace(COURSE, allocated_ns=np.array([]), allocated_bytes=np.array([]))
    assert nothing.peak_at() == (0, 0)


@pytest.mark.parametrize(("reserved", "on_device"), [([0, 16], True), ([0, 0], False), ([], False)])
def test_tensors_lie_on_a_device_whose_allocator_holds_something(reserved: list, on_device: bool) -> None:
    assert replace(COURSE, reserved_bytes=np.array(reserved)).on_device is on_device


def test_it_reads_back_as_it_was_written(tmp_path: Path) -> None:
    assert read_course(tmp_path) is None
    write_course(tmp_path, COURSE)
    found = read_course(tmp_path)
    assert found is not None
    assert all(np.array_equal(value, getattr(found, name)) for name, value in vars(COURSE).items())


def test_a_file_without_one_of_its_arrays_names_it(tmp_path: Path) -> None:
    arrays = {
        name: value for name, value in vars(COURSE).items() if name not in ("host_bytes", "phase_names")
    }
    write_arrays(tmp_path / "memory.npz", arrays)
    with pytest.raises(RecordError, match="has no host_bytes; profile the arm again"):
        read_course(tmp_path)
