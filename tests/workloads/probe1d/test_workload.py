"""The job as the pipelines see it: units, phases, repetition, sampling, refusals, and honest baselines."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from phase_times import PhaseTimes

from perfsweep.workloads.probe1d.workload import Probe1D

BEST = {"solver": "newton", "csc_layout": "on", "active_set": "pair", "warm_start": "on", "slab_size": "all"}


@pytest.mark.parametrize("levels", [{}, {"solver": "late"}, BEST], ids=["naive", "late", "best"])
def test_a_second_job_in_the_same_process_repeats_the_first_bit_by_bit(set_up, run_to_end, levels):
    workload = run_to_end(set_up(levels, data="test", max_iter=6))
    first = workload.results()
    assert workload.progress() == 64 * 8
    assert isinstance(workload, Probe1D)
    workload.reset()
    assert (workload.done(), workload.progress()) == (False, 0)
    second = run_to_end(workload).results()
    assert all(np.array_equal(first[name], second[name]) for name in first)


def test_progress_counts_pairs_slab_by_slab_and_a_finished_job_stays_finished(set_up, run_to_end):
    workload = set_up({"slab_size": 3}, data="test", max_iter=2, metrics=False)
    clock, seen = PhaseTimes(), set()
    while not workload.done():
        workload.step(clock)
        seen.add(workload.progress())
    assert seen == {0, 192, 384, 512}
    workload.step(clock)
    assert workload.progress() == 512


def test_sorting_in_set_up_leaves_the_results_and_takes_preparation_out_of_the_job(set_up, run_to_end):
    inside, outside = (
        run_to_end(set_up(BEST, data="test", sort_in_job=where)).results() for where in (True, False)
    )
    assert all(np.array_equal(inside[name], outside[name]) for name in inside)
    clock, workload = PhaseTimes(), set_up(BEST, data="test", sort_in_job=False)
    while not workload.done():
        workload.step(clock)
    assert "prepare" not in clock.seconds
    assert "statistics" in clock.seconds


def test_a_sampled_job_is_marked_as_extrapolated_and_solves_the_same_pairs_in_every_arm(solve):
    arms = [
        solve(levels, kind="timing", data="profile", slabs=2, max_iter=1, metrics=False)
        for levels in ({}, BEST)
    ]
    assert arms[0].task.grid.tolist() == arms[1].task.grid.tolist()
    assert [arm.progress() for arm in arms] == [2048 * 16] * 2
    assert arms[0].counters()["sampled_share"] == 16 / 256


def test_the_number_of_a_job_is_its_mean_loss_and_its_evidence_is_complete(solve):
    assert 0 < solve(BEST, kind="timing", data="test").numbers()["loss_mean"] < 1
    full = solve(BEST, data="test").evidence()
    assert {"probe_gradient", "probe_hessian", "coef", "intercept", "reason", "gmax", "excess"} <= set(
        full.tensors
    )
    assert {"max_gradient", "max_excess", "mean_excess", "pairs_above_tol", "explained_max"} <= set(
        full.numbers
    )


def test_every_pass_is_timed_by_the_hook_and_none_twice(solve):
    workload = solve({"timing_hook": "on", "slab_size": 4}, data="test", max_iter=7, metrics=False)
    rows = workload.arm_paths.hook.rows
    assert [slab for slab, _ in rows] == [0] * 7 + [1] * 7
    assert all(ms > 0 for _, ms in rows)


def test_the_quiet_log_reports_the_same_rows_with_fewer_waits(solve):
    waiting, quiet = (
        solve({"no_sync_log": value}, data="test", max_iter=8, metrics=False) for value in ("off", "on")
    )
    assert len(waiting.rows) == len(quiet.rows) == 8
    for one, other in zip(waiting.rows, quiet.rows, strict=True):
        assert one.keys() == other.keys()
        assert one["gradient"] == pytest.approx(other["gradient"], rel=1e-6)
        assert one.get("n_fail") == other.get("n_fail")
    assert quiet.counters()["host_syncs"] < waiting.counters()["host_syncs"] / 5


@pytest.mark.gpu
@pytest.mark.parametrize(
    "levels",
    [
        {"no_sync_log": "on", "label_free": "on"},
        {"solver": "newton", "no_sync_log": "on", "csc_layout": "on"},
    ],
)
def test_no_pass_waits_for_the_device_when_the_log_is_quiet(set_up, levels):
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    from perfsweep.workloads.api import Device

    workload = set_up(levels, device=Device("cuda", 1, compiler=True), data="test", metrics=False, max_iter=6)
    clock = PhaseTimes()
    workload.step(clock)
    workload.step(clock)
    torch.cuda.set_sync_debug_mode("error")
    try:
        workload.step(clock)  # raises where anything waits
        workload.step(clock)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert workload.counters()["slab_passes"] == 4


def test_what_a_fit_explains_is_measured_from_the_share_of_each_class_in_the_training_rows(
    set_up, run_to_end
):
    workload = run_to_end(set_up(BEST, data="test"))
    found, results = workload.evidence().numbers, workload.results()
    prior = workload.job.prepared.train.constants.prior
    seen = workload.task.data.labels_val.dense(workload.task.grid, torch.float64).mean(0)
    alone = (torch.nn.functional.softplus(prior) - seen * prior).numpy()
    best = results["loss"].argmin(0)
    explained = np.where(alone > 1e-6, 1 - results["loss_val"][best, np.arange(len(best))] / alone, 0.0)
    assert found["explained_max"] == pytest.approx(explained.max(), rel=1e-4)
    assert found["explained_mean"] == pytest.approx(explained.mean(), rel=1e-4)
