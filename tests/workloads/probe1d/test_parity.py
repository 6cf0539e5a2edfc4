"""Every path reaches the unique minimiser, and the tests that say so reject paths that do not."""

from __future__ import annotations

import numpy as np
import pytest
from tiers import tiered

from perfsweep.workloads.probe1d.declaration import CHECKS, MAX_EXCESS, MAX_GRADIENT, MEAN_EXCESS, PROBE_BOUND
from perfsweep.workloads.probe1d.evidence import probe
from perfsweep.workloads.probe1d.maths import event_sums

BEST = {"solver": "newton", "csc_layout": "on", "active_set": "pair", "warm_start": "on", "slab_size": "all"}
OPTIMISED = {
    "newton by rows": {"solver": "newton"},
    "newton without labels": {"solver": "newton", "label_free": "on"},
    "newton by latent, all pairs": {"solver": "newton", "csc_layout": "on"},
    "newton by latent, open pairs": {"solver": "newton", "active_set": "pair"},
    "newton best": BEST,
    "newton in float64": {**BEST, "precision": "f64"},
    "newton, float64 sums": {**BEST, "precision": "f32acc64"},
    "newton, quiet log": {**BEST, "no_sync_log": "on"},
    "newton, search": {**BEST, "confusion_search": "on"},
    "newton, metric by maximum": {**BEST, "qx_stat": "max"},
    "newton, one class at a time": {**BEST, "slab_size": 1},
    "newton from a cold start": {**BEST, "warm_start": "off"},
    "newton, ragged slabs": {**BEST, "slab_size": 3},
}


NOUGHT = ("reason_2", "reason_3", "reason_4", "unsolved_pairs", "pairs_above_tol", "share_above_tol")
EXACT = {
    **dict.fromkeys((*NOUGHT, "confusion_mismatches", "confusion_excused"), 0),
    "pairs": 512,
    "judged_latents": 64,
    "sampled_share": 1,
    "reason_0": 448,
    "reason_1": 64,
}
MEASURED = {"loss_mean": 0.3320788, "explained_mean": 0.1042904, "explained_max": 0.2613268}


def meets_the_oracle(numbers: dict[str, float]) -> bool:
    return (
        numbers["max_gradient"] <= MAX_GRADIENT
        and numbers["max_excess"] <= MAX_EXCESS
        and numbers["mean_excess"] <= MEAN_EXCESS
        and numbers["confusion_mismatches"] == 0
    )


def some(table: dict, quick: list[str]) -> list:
    """Cases of a table, of which `quick` belong to ``make test``."""
    return tiered([pytest.param(levels, id=name) for name, levels in table.items()], quick)


@pytest.mark.parametrize("levels", some(OPTIMISED, ["newton best"]))
def test_every_optimised_path_reaches_the_minimiser_of_every_pair(solve, levels):
    numbers = solve(levels, data="test").evidence().numbers
    assert meets_the_oracle(numbers), numbers
    assert {name: numbers[name] for name in EXACT} == EXACT
    assert {name: numbers[name] for name in MEASURED} == pytest.approx(MEASURED, rel=1e-4)
    assert len(numbers) == len(EXACT) + len(MEASURED) + 8
    assert 2 < numbers["evaluations_per_pair"] < numbers["evaluations_p99"] <= numbers["evaluations_max"]
    assert (
        abs(numbers["max_excess"] - numbers["max_unpenalised_excess"]) < 1e-7
        and 0 < numbers["mean_excess"] < 1e-6
    )


@pytest.mark.slow
def test_generated_code_reaches_the_minimiser_too(solve):
    workload = solve({**BEST, "compile": "on"}, data="test")
    assert workload.counters()["compiled_launches"] > 0
    assert meets_the_oracle(workload.evidence().numbers)


@pytest.mark.workloads
def test_at_a_hundredth_of_the_tolerance_the_excess_falls_below_1e_7(solve):
    numbers = solve({**BEST, "precision": "f64"}, data="test", tol=1e-8, metrics=False).evidence().numbers
    assert numbers["max_gradient"] <= 1.01e-8
    assert numbers["max_excess"] <= 1e-7


@pytest.mark.workloads
def test_a_job_without_metrics_has_its_mean_loss_judged_all_the_same(solve):
    """A sweep that times the solver alone must not end with results that nobody checked."""
    alone, with_metrics = (solve(BEST, data="test", metrics=on).evidence() for on in (False, True))
    wanted = {check.name for check in CHECKS}
    assert wanted <= alone.numbers.keys() | alone.tensors.keys()
    assert alone.numbers["loss_mean"] == pytest.approx(with_metrics.numbers["loss_mean"], abs=MAX_EXCESS)


def wrong_slope(monkeypatch):
    right = event_sums.event_terms

    def wrong(x, b, w, kind):
        mu, mu_x, *rest = right(x, b, w, kind)
        return (mu * (1 + 1e-4), mu_x, *rest)

    monkeypatch.setattr("perfsweep.workloads.probe1d.maths.event_sums.event_terms", wrong)


def lost_last_slab(monkeypatch):
    from perfsweep.workloads.probe1d.maths import blocks

    monkeypatch.setattr(
        "perfsweep.workloads.probe1d.maths.job.slabs",
        lambda classes, size: list(blocks.slabs(classes, 3))[:-1],
    )


@pytest.mark.workloads
@pytest.mark.parametrize("mutant", [wrong_slope, lost_last_slab])
def test_the_oracle_rejects_a_wrong_solver(solve, monkeypatch, mutant):
    mutant(monkeypatch)
    assert not meets_the_oracle(solve(BEST, data="test").evidence().numbers)


PASSES = {
    "rows without labels": {"label_free": "on"},
    "by latent": {"csc_layout": "on"},
    "float64": {"precision": "f64"},
    "float64 sums": {"precision": "f32acc64"},
    "late": {"solver": "late"},
    "newton": BEST,
    "cached rows": {"cache_row_idx": "on"},
    "long chunks": {"chunk_events": 1000},
}


def probes(workload):
    return probe(workload.job.prepared.train, workload.task.grid)


def relative(a, b):
    return np.linalg.norm(a - b) / np.linalg.norm(b)


@pytest.mark.parametrize("levels", some(PASSES, ["by latent", "late", "long chunks", "float64"]))
def test_every_pass_computes_the_same_derivatives_at_the_same_point(solve, levels):
    naive = probes(solve({}, data="test", max_iter=1, metrics=False))
    other = probes(solve(levels, data="test", max_iter=1, metrics=False))
    # Reordered float32 sums of at most a thousand terms: measured 1e-7, the bound leaves a hundredfold.
    assert all(relative(a, b) <= PROBE_BOUND for a, b in zip(other, naive, strict=True))


BIT_IDENTICAL = {
    "skip_zero_grad": "exact",
    "cache_row_idx": "on",
    "cast_once": "on",
    "timing_hook": "on",
    "no_sync_log": "on",
    "chunk_events": 1024,
}


def live_parameters(workload):
    results = workload.results()
    return [results[name][results["reason"] != 1] for name in ("coef", "intercept")]


@pytest.mark.parametrize(
    ("toggle", "level"), tiered(BIT_IDENTICAL.items(), ["skip_zero_grad=exact", "cache_row_idx=on"])
)
def test_levels_that_only_save_work_leave_live_pairs_bit_identical(solve, toggle, level):
    base = {"solver": "late", "precision": "f64"}
    before = live_parameters(solve(base, data="test", max_iter=15, metrics=False))
    after = live_parameters(solve({**base, toggle: level}, data="test", max_iter=15, metrics=False))
    assert all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))
