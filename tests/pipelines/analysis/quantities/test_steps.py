"""The steps of a trial, as its series has them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from perfsweep.pipelines.analysis.quantities.quantity import Withheld
from perfsweep.pipelines.analysis.quantities.steps import Steps, steps_of
from perfsweep.pipelines.store.records import write_iterations


def read(folder: Path, **arrays: list[int]) -> Steps | Withheld:
    series = {name: np.array(values) for name, values in arrays.items()}
    n = len(series["wall_ns"])
    write_iterations(folder, {"start_ns": np.arange(n), "flags": np.zeros(n, np.uint32), **series})
    return steps_of(folder)


def test_steps_have_their_times_and_those_of_the_outermost_phases(tmp_path: Path) -> None:
    found = read(tmp_path, wall_ns=[10, 20], **{"host_a": [4, 5], "host_a/b": [1, 1], "host_c": [2, 2]})
    assert isinstance(found, Steps)
    assert found.times_ns.tolist() == [10.0, 20.0]
    assert {name: times.tolist() for name, times in found.phases.items()} == {
        "a": [4.0, 5.0],
        "c": [2.0, 2.0],
    }


def test_where_a_device_has_marks_its_times_count(tmp_path: Path) -> None:
    found = read(tmp_path, wall_ns=[10, 20], device_ns=[7, 0], host_a=[4, 5], device_a=[3, 2])
    assert isinstance(found, Steps)
    assert found.times_ns.tolist() == [7.0, 0.0]
    assert found.phases["a"].tolist() == [3.0, 2.0]


def test_where_marks_of_some_steps_are_missing_single_steps_are_not_known(tmp_path: Path) -> None:
    words = "the device's marks of some steps could not be had, so single steps are not known"
    assert read(tmp_path, wall_ns=[10, 20], device_ns=[7, -1]) == Withheld(words)


def test_a_series_that_is_not_there_says_so_and_is_read_once_it_is(tmp_path: Path) -> None:
    lost = steps_of(tmp_path)
    assert isinstance(lost, Withheld) and str(tmp_path) in lost.reason
    assert isinstance(read(tmp_path, wall_ns=[10]), Steps)


@pytest.mark.parametrize("values", [[1], [1, 2, 3]])
def test_times_are_floating_numbers_so_that_shares_can_be_made_of_them(
    tmp_path: Path, values: list[int]
) -> None:
    found = read(tmp_path, wall_ns=values)
    assert isinstance(found, Steps) and found.times_ns.dtype == np.float64
