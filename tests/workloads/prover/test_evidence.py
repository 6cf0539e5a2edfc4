"""Figures that the report's claims about steps speak of."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from perfsweep.workloads.prover import evidence
from perfsweep.workloads.prover.counters import NAMES, Counts
from perfsweep.workloads.prover.data.corruption import Candidates
from perfsweep.workloads.prover.evidence import _rates, step_slope, time_of_steps, varied_over_short
from perfsweep.workloads.prover.job import ModeResult

SLAB = 512
MANY = [number * 69 // 63 for number in range(64)]


def steps(done: dict[int, int], ms: dict[int, float], **first: float) -> list[dict[str, float]]:
    """Twenty steps of a full slab, and the first step of the next one."""
    rows = [
        {
            "step_ms": ms.get(step, 42.0),
            "done": done.get(step, 0),
            "slabs": float(step == 0),
            "row_steps": SLAB,
            "padded_rows": 0.0,
        }
        for step in range(20)
    ]
    rows[0] |= first
    return [*rows, {**rows[0], "slabs": 1.0, "done": 99}]


def test_rows_done_are_those_of_the_first_slab_after_the_reported_steps() -> None:
    numbers = time_of_steps(steps({1: 294, 5: 200, 11: 8, 19: 10}, {0: 81.0, 1: 46.0}), SLAB)
    assert {name: numbers[name] for name in numbers if name.startswith("done")} == {
        "done_after_step_1": 294,
        "done_after_step_11": 502,
        "done_after_step_19": 512,
    }
    assert numbers["first_step_over_second"] == pytest.approx(81 / 46)
    assert numbers["evaluation_s"] == pytest.approx((2 * 81 + 46 + 18 * 42) / 1e3)


@pytest.mark.parametrize("first", [{"padded_rows": 3.0}, {"row_steps": 100.0}, {"refilled": 4.0}])
def test_a_slab_that_is_not_full_or_is_fed_says_nothing_about_512_rows(first: dict[str, float]) -> None:
    assert set(time_of_steps(steps({1: 294}, {}, **first), SLAB)) == {"evaluation_s"}
    assert set(time_of_steps(steps({1: 294}, {}), None)) == {"evaluation_s"}
    assert time_of_steps([], SLAB) == {"evaluation_s": 0}


@pytest.mark.parametrize(
    ("empty_ms", "full_ms", "slope"), [(4.0, 4.0, 0.0), (0.0, 6.0, 1.0), (2.0, 8.0, 0.75)]
)
def test_a_slope_is_the_share_of_a_full_slabs_time_that_idle_rows_save(
    empty_ms: float, full_ms: float, slope: float
) -> None:
    rows = [
        {"row_steps": 10, "active": active, "step_ms": empty_ms + (full_ms - empty_ms) * active / 10}
        for active in (10, 7, 7, 2)
    ]
    smaller = {"row_steps": 9, "active": 5, "step_ms": 1e6}
    assert step_slope([*rows, smaller]) == pytest.approx(slope, abs=1e-9)
    assert math.isnan(step_slope(rows[:3]))
    assert math.isnan(step_slope([]))


def test_queries_and_corruptions_have_rates_of_their_own() -> None:
    def result(success: list[bool], depth: list[int], sizes: list[int]) -> ModeResult:
        return ModeResult({"success": np.array(success), "depth": np.array(depth)}, np.array(sizes))

    modes = {
        "head": result([True, False, True, False, True], [1, 2, 3, 4, 5], [2, 3]),
        "tail": result([False], [9], [1]),
    }
    rates = _rates(modes)
    assert rates == pytest.approx(
        {"success_positive": 2 / 3, "success_negative": 1 / 3, "depth_mean": 24 / 6}
    )
    assert _rates({"tail": modes["tail"]})["success_negative"] == 0.0


@pytest.mark.parametrize(("slab", "varied"), [(4, [0, 23, 46, 69]), (None, MANY), (99, MANY)])
def test_candidates_from_first_to_last_are_timed_against_as_many_of_the_shortest(
    monkeypatch: pytest.MonkeyPatch, slab: int | None, varied: Any
) -> None:
    atoms = torch.arange(70)[:, None].expand(70, 3)
    timed: list[list[int]] = []
    monkeypatch.setattr(
        evidence, "_until_done", lambda job, own: timed.append(own[:, 0].tolist()) or 6.0 / len(timed)
    )
    drawn = SimpleNamespace(together=lambda queries: Candidates(atoms, torch.tensor([70])))
    config = SimpleNamespace(mode_names=("tail",))
    task = SimpleNamespace(config=config, slab=slab, queries=None, corruptor={"tail": drawn}.__getitem__)
    outcome = {"depth": np.array([5, 4, 9, 2, 8, 9, 9, 3, 9, 2] * 7)}
    job: Any = SimpleNamespace(task=task, results={"tail": SimpleNamespace(outcome=outcome)})
    assert varied_over_short(job) == 2.0
    assert timed == [[*varied], [3] * len(varied)]


def test_counts_of_steps_are_added_up_when_a_job_has_ended() -> None:
    counts = Counts()
    counts.add("corruption_batches", 5)
    for done in (2, 3):
        counts.add("jobs")
        counts.iteration({"done": torch.tensor(done), "row_steps": 7, "step_ms": 1.5})
    assert counts.settle() == [{"done": done, "row_steps": 7.0, "step_ms": 1.5} for done in (2.0, 3.0)]
    assert counts.settle() == []
    found = counts.snapshot({"own": 4.0})
    expected = {"jobs": 2, "corruption_batches": 5, "done": 5, "row_steps": 14, "steps": 2, "own": 4}
    assert found == {**dict.fromkeys(NAMES, 0), **expected}
