"""Every level moves its witness, what makes a level inert, and which levels go together."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from declared import described, faults, lines
from tiers import tiered

from perfsweep.pipelines.plan.arms import Space
from perfsweep.workloads.api import Device
from perfsweep.workloads.probe1d import variants
from perfsweep.workloads.probe1d.config import Probe1DConfig
from perfsweep.workloads.probe1d.reference import Reference
from perfsweep.workloads.probe1d.workload import Probe1D

HERE = Device(compiler=True)
SPACE = Space(Probe1D.toggles, Probe1DConfig(), HERE)
LEVELS = [
    pytest.param(toggle.name, level, id=f"{toggle.name}={level.value}")
    for toggle in Probe1D.toggles
    for level in toggle.levels[1:]
    if level.witness and not level.unsupported(HERE) and toggle.name != "compile"
]
CONFIG = {
    "cast_once": {"storage_dtype": "float16"},
    "chunk_events": {"data": "nfail", "max_iter": 1},
    "slab_size": {"data": "profile", "slabs": 6, "max_iter": 1},
}
"""Where a level needs more than the smallest data to act on."""


MOVED = json.loads(Path(__file__).with_name("moved_counts.json").read_text())
"""What eight passes of two damped solvers count, zeros left out; of a level what differs from its base."""
SIZES = ("coef", "intercept", "loss", "loss_val", "gmax")
ROUNDED = ("solver=late", "solver=newton", "skip_zero_grad=tol", "active_set=pair", "warm_start=on")
"""Levels whose counts depend on when pairs are done, which another processor rounds otherwise."""
QUICK = [
    *("consistent_stop=scaled", "skip_zero_grad=exact", "skip_zero_grad=tol", "freeze_failed=3"),
    *("active_set=pair", "cache_row_idx=on", "cast_once=on", "qx_stat=rms_free", "qx_stat=p95"),
    *("precision=f64", "label_free=on", "csc_layout=on", "confusion_search=on", "warm_start=on"),
    *("timing_hook=on", "no_sync_log=on", "solver=newton"),
]


@pytest.fixture(scope="module")
def counted_bases():
    """What bases that several levels have in common count."""
    return {}


def counted(workload):
    """Counters of a job, evaluations of all its pairs, and how many ended for each reason."""
    results = workload.results()
    reasons = np.bincount(results["reason"].ravel(), minlength=5).tolist()
    ended = {f"reason_{number}": count for number, count in enumerate(reasons)}
    return {**workload.counters(), "evals": float(results["evals"].sum()), **ended}


@pytest.mark.parametrize(("name", "level"), tiered(LEVELS, QUICK))
def test_a_level_moves_its_witness_and_what_follows_from_it(solve, counted_bases, name, level):
    config = {"data": "test", "max_iter": 8, "metrics": name == "confusion_search", **CONFIG.get(name, {})}
    required = {"solver": "newton"} if name == "warm_start" else {}
    arm = SPACE.closure({name: level.value, **required})
    key = str((base := SPACE.without(arm, name), config))
    if key not in counted_bases:
        counted_bases[key] = counted(solve(base, kind="counting", **config))
    found, before = counted(solve(arm, kind="counting", **config)), counted_bases[key]
    assert found[level.witness] != before[level.witness]
    if (own := f"{name}={level.value}") in MOVED:
        moved = {one: value for one, value in found.items() if value != before[one]}
        assert moved == pytest.approx(MOVED[own], rel=0.02 if own in ROUNDED else 1e-6)


@pytest.mark.parametrize("solver", ["naive", "late"])
def test_eight_passes_of_a_damped_solver_lead_where_they_led(solve, solver):
    """Counts that are not zero, and sizes of what was found in float64."""
    workload = solve({"solver": solver, "precision": "f64"}, kind="counting", data="test", max_iter=8)
    results = workload.results()
    found = {name: float(np.abs(results[name]).sum()) for name in SIZES}
    found |= {name: value for name, value in counted(workload).items() if value}
    assert found == pytest.approx(MOVED[solver], rel=1e-5)


def test_the_naive_arm_is_the_reference_and_nothing_else():
    assert variants.arm(SPACE.closure({})).__mro__[1:] == Reference.__mro__


def test_a_cast_to_the_type_that_is_there_is_inert(solve):
    assert solve({"cast_once": "on"}, kind="counting", data="test", max_iter=3).counters()["casts"] == 0


def test_freezing_finds_nothing_to_freeze_once_zero_gradients_are_skipped(solve):
    both = solve({"freeze_failed": 3, "skip_zero_grad": "exact"}, kind="counting", data="test", max_iter=8)
    assert both.counters()["frozen_pairs"] == 0


def test_every_level_has_a_witness_and_bounds_and_no_declaration_imports_torch():
    assert faults(Probe1D.toggles, variants, ("consistent_stop=mismatch", "caching_allocator=off")) == []


DECLARED = """
solver naive, Context: late (late_passes tolerance), newton (newton_passes tolerance told)
consistent_stop seed solver=naive, Context: mismatch (solver=late), scaled (scaled_tests tolerance told)
skip_zero_grad off, Ideas to try: exact (skipped_zero_grad solver=naive|late told), tol (skipped_zero_grad
  tolerance solver=naive|late)
freeze_failed 0, Ideas to try, any integer from 1 to 1000 frozen_pairs tolerance solver=naive|late: 3
  (frozen_pairs tolerance solver=naive|late)
active_set off, analysis: pair (compacted_pairs tolerance label_free=on csc_layout=on consistent_stop=scaled)
cache_row_idx off, Suspected bottlenecks, Ideas to try: on (row_index_builds solver=naive|late)
cast_once off, Suspected bottlenecks, Ideas to try: on (casts)
chunk_events 32768, Ideas to try, any integer from 32 chunks solver=naive|late: 262144/1048576/4194304/auto
  (chunks solver=naive|late)
slab_size 8, Ideas to try, any integer from 1 slabs: 1/4/32/all (slabs)
qx_stat rms, Open questions: rms_free (qx_passes), meanabs/max/p95 (metric_changed tolerance)
precision f32, Open questions: f64 (events_f64 tolerance), f32acc64 (sums_acc64 tolerance)
label_free off, analysis: on (label_gathers told)
csc_layout off, analysis: on (bucket_launches label_free=on told)
compile off, analysis: on (compiled_graphs label_free=on csc_layout=on on old+gpu+cpu)
fused_kernel off, analysis: on (fused_launches label_free=on csc_layout=on compile!on precision!f32acc64 on
  old+gpu+cpu)
confusion_search off, Ideas to try: on (confusion_searches label_free=on csc_layout=on)
warm_start off, analysis: on (warm_pairs tolerance label_free=on)
timing_hook off, Ideas to try: on (hook_records), profiler (profiler_samples)
no_sync_log off, Suspected bottlenecks: on (host_syncs)
caching_allocator on, Profiling plan: off (on old+gpu)
"""
"""Baseline and section, then each level: its witness, class and bounds, what it needs and excludes."""


def test_every_level_declares_what_it_changes_and_what_it_needs():
    assert list(described(Probe1D.toggles)) == lines(DECLARED)
