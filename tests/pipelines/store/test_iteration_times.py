"""Whose clock says how long an iteration, or a phase of it, took."""

from __future__ import annotations

import numpy as np
import pytest

from perfsweep.pipelines.store.trial_files import iteration_times, phase_times

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
