"""When Python's collector runs, policy by policy."""

from __future__ import annotations

import pytest

from perfsweep.workloads.training.garbage_collection import POLICIES, Collector


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    calls: list[str] = []
    for name in ("collect", "freeze", "unfreeze"):
        monkeypatch.setattr(f"gc.{name}", lambda name=name: calls.append(name))
    return calls


@pytest.mark.parametrize(
    ("policy", "after", "whole"),
    [
        ("automatic", [], []),
        ("each_eval", [*range(1, 22)], ["collect"] * 21),
        ("rarely", [10, 20], ["collect"] * 2),
        ("frozen", [], ["collect", "freeze", "unfreeze"]),
    ],
)
def test_what_is_done_over_a_training(
    policy: str, after: list[int], whole: list[str], done: list[str]
) -> None:
    collector, collected = Collector(**POLICIES[policy]), []
    for iteration in range(1, 22):
        collector.after_iteration(iteration)
        assert ("freeze" in done) == (policy == "frozen" and iteration >= 3)
        before = collector.runs
        collector.after_evaluation()
        collected += [iteration] * (collector.runs - before)
    collector.close()
    assert (done, collected, collector.evaluations) == (whole, after, 21)
