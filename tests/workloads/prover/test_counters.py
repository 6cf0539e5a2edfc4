"""Counts of steps, read from tensors once and added to totals."""

from __future__ import annotations

import torch

from perfsweep.workloads.prover.counters import NAMES, Counts


def test_rows_become_numbers_and_are_added_up() -> None:
    counts = Counts()
    counts.add("jobs")
    counts.add("done", 2)
    counts.iteration({"done": torch.tensor(3), "slabs": 1})
    counts.iteration({"done": 4.0, "deferred": torch.tensor(True)})
    assert counts.settle() == [{"done": 3.0, "slabs": 1.0}, {"done": 4.0, "deferred": 1.0}]
    assert counts.settle() == []
    found = counts.snapshot({"extra": 9.0})
    assert {name: value for name, value in found.items() if value} == {
        "jobs": 1,
        "done": 9,
        "slabs": 1,
        "deferred": 1,
        "steps": 2,
        "extra": 9,
    }
    assert set(found) == {*NAMES, "extra"}
