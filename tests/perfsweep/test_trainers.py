"""Marks of trainers: an iteration ends with a step of the optimiser."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from perfsweep import marks


@pytest.fixture
def marking(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str, str], tuple[Any, list[str]]]:
    """Imports a module of marks beside a library that has nothing but its callbacks."""

    def make(module: str, library: str, callback: str) -> tuple[Any, list[str]]:
        marked: list[str] = []
        there: Any = ModuleType(library)
        setattr(there, callback, object)
        monkeypatch.setitem(sys.modules, library, there)
        monkeypatch.delitem(sys.modules, module, raising=False)
        monkeypatch.setattr(marks, "mark", lambda: marked.append("mark"))
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
