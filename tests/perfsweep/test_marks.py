"""Explicit marks and those of trainers: heard by a trial that listens, and nothing anywhere else."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

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


@pytest.fixture
def marking(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str, str], tuple[Any, list[str]]]:
    """Imports a module of marks, with a library that has nothing but its callbacks."""

    def make(module: str, library: str, callback: str) -> tuple[Any, list[str]]:
        marked: list[str] = []
        there: Any = ModuleType(library)
        setattr(there, callback, object)
        monkeypatch.setitem(sys.modules, library, there)
        monkeypatch.delitem(sys.modules, module, raising=False)
        monkeypatch.setattr(perfsweep, "mark", lambda: marked.append("mark"))
        found = importlib.import_module(module)
        monkeypatch.delitem(sys.modules, module)
        return found.Marks(), marked

    return make


def test_batches_that_are_only_accumulated_end_no_iteration(marking: Any) -> None:
    own, marked = marking("perfsweep.lightning", "lightning", "Callback")
    counts = []
    for step in (0, 1, 1, 2, 2):
        own.on_train_batch_end(SimpleNamespace(global_step=step), "module", "outputs", "batch", 0)
        counts.append(len(marked))
    assert counts == [0, 1, 1, 2, 2]


def test_a_step_of_the_trainer_is_an_iteration(marking: Any) -> None:
    own, marked = marking("perfsweep.trainer", "transformers", "TrainerCallback")
    own.on_step_end("args", "state", "control", model=None)
    assert marked == ["mark"]
