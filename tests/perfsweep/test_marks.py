"""Explicit marks: heard by a trial that listens, and nothing anywhere else."""

from __future__ import annotations

import sys

import pytest

import perfsweep
from perfsweep.workloads.script import explicit_marks


def test_each_batch_is_marked_when_its_iteration_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    monkeypatch.setattr(explicit_marks, "arrived", lambda: done.append("mark"))
    for batch in perfsweep.steps("ab"):
        done.append(batch)
    perfsweep.mark()
    assert done == ["a", "mark", "b", "mark", "mark"]


def test_outside_a_trial_marks_do_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explicit_marks, "arrived", None)
    assert list(perfsweep.steps([1, 2])) == [1, 2]
    monkeypatch.delitem(sys.modules, explicit_marks.__name__)
    assert list(perfsweep.steps([1, 2])) == [1, 2]
