"""Damped steps of whole slabs: who takes part in them, when a slab is over, and why a pair stopped."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from perfsweep.workloads.probe1d.maths.blocks import Reason


@pytest.fixture
def results(solve) -> Any:
    """Results and counters of a job on the small problem."""

    def run(levels: dict[str, Any], **config: Any) -> tuple[dict[str, np.ndarray], dict[str, float]]:
        workload = solve(
            levels, kind="counting", **{"data": "test", "max_iter": 6, "metrics": False, **config}
        )
        return workload.results(), workload.counters()

    return run


def dead_of(results: dict[str, np.ndarray]) -> np.ndarray:
    return results["reason"] == Reason.DEAD


def test_pairs_without_a_gradient_are_left_out_of_steps_and_everything_else_is_the_same(results) -> None:
    every, all_counters = results({})
    live, counters = results({"skip_zero_grad": "exact"})
    dead = dead_of(every)
    assert dead.any() and (dead_of(live) == dead).all()
    for name in ("coef", "intercept"):
        np.testing.assert_array_equal(live[name][~dead], every[name][~dead])
    assert counters["skipped_zero_grad"] >= 6 * dead.sum() and all_counters["skipped_zero_grad"] == 0
    assert counters["n_fail"] < all_counters["n_fail"]


def test_pairs_within_the_tolerance_move_no_more(results) -> None:
    loose = {"tol": 0.02, "max_iter": 8}
    still, counters = results({"skip_zero_grad": "tol"}, **loose)
    moving, exact = results({"skip_zero_grad": "exact"}, **loose)
    assert counters["skipped_zero_grad"] > exact["skipped_zero_grad"]
    reached = still["gmax"] <= 0.02
    assert reached.any() and (still["reason"][reached & ~dead_of(still)] == Reason.CONVERGED).all()
    assert (moving["gmax"][reached] <= 0.02).all() and moving["gmax"].sum() < still["gmax"].sum()


def test_a_pair_that_keeps_failing_is_frozen_and_said_to_be(results) -> None:
    found, counters = results({"freeze_failed": 2})
    live = (found["reason"] == Reason.FROZEN).sum()
    assert live <= counters["frozen_pairs"] <= live + dead_of(found).sum()
    assert counters["frozen_pairs"] > 0, "the steps of pairs without events fail"
    never, none = results({"freeze_failed": 100})
    assert none["frozen_pairs"] == 0 and not (never["reason"] == Reason.FROZEN).any()
    assert none["n_fail"] > counters["n_fail"]


@pytest.mark.parametrize("solver", ["naive", "late"])
def test_a_slab_is_over_once_all_its_pairs_are_within_the_tolerance(results, solver: str) -> None:
    levels = {"solver": solver, "consistent_stop": "scaled"}
    found, counters = results(levels, tol=0.02, max_iter=40)
    passes = int(counters["slab_passes"])
    assert 1 < passes < 40 and counters["scaled_tests"] == passes
    assert (found["gmax"] <= 0.02).all() and (found["evals"] == passes).all()
    assert set(np.unique(found["reason"])) == {Reason.CONVERGED, Reason.DEAD}
    tight, all_passes = results(levels, tol=1e-9, max_iter=3)
    assert all_passes["slab_passes"] == 3 and Reason.BUDGET in tight["reason"]


def test_the_report_time_test_ends_a_slab_whose_pairs_stand_where_they_should(solve, write_problem) -> None:
    balanced = write_problem(np.ones((8, 1)), np.tile([0, 1], 4))
    workload = solve({"solver": "naive"}, kind="counting", data=str(balanced), max_iter=6, metrics=False)
    assert workload.counters()["slab_passes"] == 1


def test_every_pass_reads_every_event_of_its_pairs(results) -> None:
    by_latent = {"solver": "late", "label_free": "on", "csc_layout": "on"}
    three, six = (results(by_latent, tol=1e-12, max_iter=passes)[1] for passes in (3, 6))
    assert six["event_evaluations"] == 2 * three["event_evaluations"]
    assert three["event_evaluations"] > three["pair_evaluations"] > 0, "most pairs have several"


def test_pairs_that_are_done_leave_the_passes_with_what_they_have(results) -> None:
    by_latent = {"solver": "late", "label_free": "on", "csc_layout": "on", "consistent_stop": "scaled"}
    loose = {"tol": 0.05, "max_iter": 12}
    whole, _ = results(by_latent, **loose)
    found, counters = results({**by_latent, "active_set": "pair"}, **loose)
    assert counters["compacted_pairs"] > 0
    assert (found["gmax"] <= 0.05).sum() >= (whole["gmax"] <= 0.05).sum()
    assert found["evals"].min() < found["evals"].max() <= 12
    assert (dead_of(found) == dead_of(whole)).all()
