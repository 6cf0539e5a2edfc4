"""What the code paths count: all of it from the start, but for what there is nothing of."""

from __future__ import annotations

import torch

from perfsweep.workloads.probe1d.counters import NAMES, OF_DEAD, Counts


def test_counts_are_zero_until_something_happens() -> None:
    counts = Counts()
    assert counts.snapshot() == dict.fromkeys([name for name in NAMES if name != OF_DEAD], 0.0)
    counts.add("slabs")
    counts.add("slabs", 2)
    assert counts.snapshot([("share", 0.5)])["slabs"] == 3
    assert counts.snapshot([("share", 0.5)])["share"] == 0.5


def test_the_largest_value_stays_and_is_none_of_pairs_that_do_not_exist() -> None:
    counts = Counts()
    for value in (3.0, 7.0, 5.0):
        counts.top("lambda_max_live", value)
    counts.top(OF_DEAD, 0.0)
    assert counts.snapshot()["lambda_max_live"] == 7
    assert OF_DEAD not in counts.snapshot()
    counts.top(OF_DEAD, 1e12)
    assert counts.snapshot()[OF_DEAD] == 1e12


def test_each_read_of_the_device_is_one_wait_however_much_it_brings() -> None:
    counts = Counts()
    assert counts.read(torch.tensor(2.5)) == 2.5
    assert counts.read_all(torch.tensor([1.0, 2.0])) == [1.0, 2.0]
    assert counts.snapshot()["host_syncs"] == 2
