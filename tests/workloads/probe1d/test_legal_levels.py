"""Every level moves its witness, what makes a level inert, and which levels go together."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from declared import faults
from tiers import tiered

from perfsweep.pipelines.plan.arms import Space
from perfsweep.workloads.api import Device
from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.probe1d import variants
from perfsweep.workloads.probe1d.config import Probe1DConfig
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
"""Counts of eight passes of the naive path, zeros left out; of a level what differs from its base."""
ROUNDED = ("solver=newton", "skip_zero_grad=tol", "active_set=pair", "warm_start=on")
"""Levels whose counts depend on when pairs are done, which another processor rounds otherwise."""
QUICK = [
    *("consistent_stop=scaled", "skip_zero_grad=exact", "skip_zero_grad=tol", "freeze_failed=3"),
    *("active_set=pair", "cache_row_idx=on", "cast_once=on", "qx_stat=rms_free", "qx_stat=p95"),
    *("precision=f64", "label_free=on", "csc_layout=on", "confusion_search=on", "warm_start=on"),
    *("timing_hook=on", "no_sync_log=on"),
]


@pytest.fixture(scope="module")
def counted_bases():
    """Counters of bases that several levels have in common."""
    return {}


@pytest.mark.parametrize(("name", "level"), tiered(LEVELS, QUICK))
def test_a_level_moves_its_witness_and_what_follows_from_it(solve, counted_bases, name, level):
    config = {"data": "test", "max_iter": 8, "metrics": name == "confusion_search", **CONFIG.get(name, {})}
    required = {"solver": "newton"} if name == "warm_start" else {}
    arm = SPACE.closure({name: level.value, **required})
    key = str((base := SPACE.without(arm, name), config))
    if key not in counted_bases:
        counted_bases[key] = solve(base, kind="counting", **config).counters()
    found, before = solve(arm, kind="counting", **config).counters(), counted_bases[key]
    assert found[level.witness] != before[level.witness]
    if (own := f"{name}={level.value}") in MOVED:
        moved = {one: value for one, value in found.items() if value != before[one]}
        assert moved == pytest.approx(MOVED[own], rel=0.02 if own in ROUNDED else 1e-6)
    if base == SPACE.closure({}) and config == {"data": "test", "max_iter": 8, "metrics": False}:
        assert {one: value for one, value in before.items() if value} == pytest.approx(MOVED["naive"])


def test_a_cast_to_the_type_that_is_there_is_inert(solve):
    counted = [
        solve({"cast_once": value}, kind="counting", data="test", max_iter=3).counters()
        for value in ("on", "off")
    ]
    assert counted[0]["casts"] == counted[1]["casts"] == 0


def test_freezing_finds_nothing_to_freeze_once_zero_gradients_are_skipped(solve):
    frozen = solve({"freeze_failed": 3}, kind="counting", data="test", max_iter=8).counters()["frozen_pairs"]
    both = solve({"freeze_failed": 3, "skip_zero_grad": "exact"}, kind="counting", data="test", max_iter=8)
    assert frozen > 0
    assert both.counters()["frozen_pairs"] == 0


@pytest.mark.parametrize(
    ("levels", "names"),
    [
        ({"active_set": "pair", "csc_layout": "off"}, ("active_set", "csc_layout")),
        ({"csc_layout": "on", "label_free": "off"}, ("csc_layout", "label_free")),
        ({"solver": "newton", "skip_zero_grad": "exact"}, ("skip_zero_grad", "solver")),
        ({"solver": "newton", "consistent_stop": "mismatch"}, ("consistent_stop", "solver")),
        ({"confusion_search": "on", "csc_layout": "off"}, ("confusion_search", "csc_layout")),
        ({"fused_kernel": "on", "compile": "on"}, ("fused_kernel", "compile")),
    ],
)
def test_an_illegal_combination_is_refused_naming_both_leaves(levels, names):
    with pytest.raises(ConfigError) as refusal:
        SPACE.legal(levels)
    assert all(name in str(refusal.value) for name in names)


def test_every_level_has_a_witness_and_bounds_and_no_declaration_imports_torch():
    assert faults(Probe1D.toggles, variants, ("consistent_stop=mismatch", "caching_allocator=off")) == []


def test_any_number_of_failures_is_judged_and_refused_as_three_are():
    toggle = SPACE.toggle("freeze_failed")
    assert toggle.level(5) == dataclasses.replace(toggle.level(3), value=5)
    for failures in (-1, 1001):
        with pytest.raises(ConfigError, match="freeze_failed"):
            SPACE.legal({"freeze_failed": failures})


@pytest.mark.parametrize("size", [0, -3, 2.5])
def test_a_slab_size_that_is_no_positive_number_is_refused(size):
    with pytest.raises(ConfigError, match="slab_size"):
        SPACE.legal({"slab_size": size})
