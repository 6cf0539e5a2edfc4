"""When Python's collector runs, policy by policy."""

from __future__ import annotations

import pytest

from perfsweep.workloads.training.garbage_collection import FREEZE_AT, POLICIES, Collector


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    calls: list[str] = []
    for name in ("collect", "freeze", "unfreeze"):
        monkeypatch.setattr(f"gc.{name}", lambda name=name: calls.append(name))
    return calls


@pytest.mark.parametrize(
    ("policy", "runs", "whole"),
    [
        ("automatic", 0, []),
        ("each_eval", 21, ["collect"] * 21),
        ("rarely", 2, ["collect"] * 2),
        ("frozen", 0, ["collect", "freeze", "unfreeze"]),
    ],
)
def test_what_is_done_over_a_training(policy: str, runs: int, whole: list[str], done: list[str]) -> None:
    collector = Collector(**POLICIES[policy])
    for iteration in range(1, 22):
        collector.after_iteration(iteration)
        assert ("freeze" in done) == (policy == "frozen" and iteration >= FREEZE_AT)
        collector.after_evaluation()
        assert collector.runs == (0 if not collector.every else iteration // collector.every)
    collector.close()
    assert (done, collector.runs, collector.evaluations) == (whole, runs, 21)
