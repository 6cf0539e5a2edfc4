"""When garbage is collected and the allocator's cache emptied, level by level."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from perfsweep.workloads.spd.training import loop
from perfsweep.workloads.spd.variants import TOGGLES, arm


def arm_at(level: str) -> Any:
    """An arm of which nothing is made."""
    levels = {toggle.name: toggle.levels[0].value for toggle in TOGGLES} | {"gc": level}
    made = object.__new__(arm(levels))
    made.levels = levels
    return made


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was done, in order."""
    calls: list[str] = []
    monkeypatch.setattr("gc.collect", lambda: calls.append("collect"))
    monkeypatch.setattr("gc.freeze", lambda: calls.append("freeze"))
    monkeypatch.setattr("gc.unfreeze", lambda: calls.append("unfreeze"))
    monkeypatch.setattr(loop, "empty_cache", lambda: calls.append("empty"))
    return calls


@pytest.fixture
def worked(monkeypatch: pytest.MonkeyPatch, done: list[str]) -> Any:
    """What an attempt gives whose first tries raise these errors, and how often the work was tried."""

    def make(level: str, errors: list[Exception]) -> tuple[Any, int]:
        made, left, tried = arm_at(level), list(errors), []
        made.collector = made.collecting()

        def advance(batch: Any, clock: Any) -> Any:
            tried.append(batch)
            if left:
                raise left.pop(0)
            return "result"

        made.advance = advance
        return made.attempt(torch.zeros(1), None), len(tried)

    return make


def test_work_is_tried_once_more_after_a_collection_at_one_level_alone(worked: Any, done: list[str]) -> None:
    assert worked("oom_only", []) == ("result", 1) and done == []
    assert worked("oom_only", [torch.OutOfMemoryError("full")]) == ("result", 2)
    assert done == ["collect", "empty"]
    with pytest.raises(torch.OutOfMemoryError):
        worked("rarely", [torch.OutOfMemoryError("full")])
    assert done == ["collect", "empty"]


def test_work_that_fails_twice_or_otherwise_fails(worked: Any, done: list[str]) -> None:
    with pytest.raises(torch.OutOfMemoryError):
        worked("oom_only", [torch.OutOfMemoryError("full")] * 2)
    assert done == ["collect", "empty"]
    with pytest.raises(ValueError, match="wrong"):
        worked("oom_only", [ValueError("wrong")])
    assert done == ["collect", "empty"]
