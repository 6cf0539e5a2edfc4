"""When garbage is collected and the allocator's cache emptied, level by level."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from perfsweep.workloads.spd.training import collector
from perfsweep.workloads.spd.training.collector import collector_for


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was done, in order."""
    calls: list[str] = []
    monkeypatch.setattr("gc.collect", lambda: calls.append("collect"))
    monkeypatch.setattr("gc.freeze", lambda: calls.append("freeze"))
    monkeypatch.setattr("gc.unfreeze", lambda: calls.append("unfreeze"))
    monkeypatch.setattr(collector, "empty_cache", lambda: calls.append("empty"))
    return calls


@pytest.mark.parametrize(
    ("level", "evaluations", "expected"),
    [
        ("automatic", 20, []),
        ("each_eval", 2, ["empty", "collect"] * 2),  # as the field report does it
        ("rarely", 9, []),
        ("rarely", 20, ["collect", "empty"] * 2),
        ("frozen", 20, []),
        ("oom_only", 20, []),
    ],
)
def test_collections_after_evaluations(
    level: str, evaluations: int, expected: list[str], done: list[str]
) -> None:
    made = collector_for(level)
    for _ in range(evaluations):
        made.after_evaluation()
    assert done == expected
    assert made.runs == done.count("collect")


@pytest.mark.parametrize(
    ("level", "expected"), [("frozen", ["collect", "freeze", "unfreeze"]), ("rarely", []), ("oom_only", [])]
)
def test_what_exists_is_frozen_after_the_third_iteration_until_the_end(
    level: str, expected: list[str], done: list[str]
) -> None:
    made = collector_for(level)
    for iteration in (1, 2, 3, 4, 5):
        made.after_iteration(iteration)
        assert ("freeze" in done) == (level == "frozen" and iteration >= 3)
    made.close()
    assert done == expected


@pytest.mark.parametrize("level", ["oom_only", "rarely"])
def test_work_is_tried_once_more_after_a_collection_at_one_level_alone(level: str, done: list[str]) -> None:
    tried: list[int] = []

    def work() -> Any:
        tried.append(len(tried))
        if len(tried) == 1:
            raise torch.OutOfMemoryError("full")
        return "result"

    made = collector_for(level)
    if level == "oom_only":
        assert made.guard(work) == "result"
        assert done == ["collect", "empty"]
        assert made.guard(work) == "result"
        assert (len(tried), made.runs) == (3, 1)
    else:
        with pytest.raises(torch.OutOfMemoryError):
            made.guard(work)
        assert done == []


def test_work_that_fails_twice_or_otherwise_fails(done: list[str]) -> None:
    def full() -> None:
        raise torch.OutOfMemoryError("full")

    def wrong() -> None:
        raise ValueError("wrong")

    with pytest.raises(torch.OutOfMemoryError):
        collector_for("oom_only").guard(full)
    assert done == ["collect", "empty"]
    with pytest.raises(ValueError, match="wrong"):
        collector_for("oom_only").guard(wrong)
    assert done == ["collect", "empty"]
