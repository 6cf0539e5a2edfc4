"""Every level changes what runs: its witness moves against the base, and combination rules hold."""

from __future__ import annotations

import pytest
from tiers import tiered

from perfsweep.pipelines.plan.arms import Space
from perfsweep.workloads.api import Device, contract_problems
from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.probe1d.config import Probe1DConfig
from perfsweep.workloads.probe1d.workload import Probe1D

HERE = Device(compiler=True)
SPACE = Space(Probe1D.toggles, Probe1DConfig(), HERE)

# Where a level needs a problem to act on; all others act on the small preset's 60 events per latent.
PROBLEMS = {
    "cast_once=on": {"storage_dtype": "float16"},
    "chunk_events=auto": {"data": "profile", "slabs": 1, "max_iter": 2},
    "chunk_events=262144": {"data": "profile", "slabs": 1, "max_iter": 2},
    "chunk_events=1048576": {"data": "profile", "slabs": 1, "max_iter": 2},
    "chunk_events=4194304": {"data": "profile", "slabs": 1, "max_iter": 2},
    "slab_size=32": {"data": "profile", "slabs": 6, "max_iter": 2},
    "slab_size=all": {"data": "profile", "slabs": 2, "max_iter": 2},
    "compile=on": {"metrics": False},
}
WITNESS = {"compile=on": "compiled_launches"}  # graphs are counted by the pipeline
QUICK = (
    *("solver=newton", "precision=block", "skip_zero_grad=exact", "active_set=pair", "freeze_failed=3"),
    *("fused_kernel=on", "csc_layout=on", "confusion_search=on", "label_free=on"),
    *("warm_start=on", "slab_size=4"),
)
LEVELS = [(toggle.name, level) for toggle in Probe1D.toggles for level in toggle.levels[1:]]


def marks(name, level):
    return [pytest.mark.slow] if name == "compile" else []


@pytest.mark.parametrize(
    ("name", "level"),
    tiered(
        [pytest.param(*each, id=f"{each[0]}={each[1].value}", marks=marks(*each)) for each in LEVELS], QUICK
    ),
)
def test_every_level_moves_its_witness_against_its_base(solve, no_generated_code, name, level):
    if level.unsupported(HERE):
        pytest.skip("acts on CUDA only")
    arm = SPACE.closure({name: level.value})
    if arm[name] == SPACE.toggle(name).baseline(arm, HERE):
        pytest.skip("the baseline itself beside these levels")
    base = SPACE.without(arm, name)
    config = {"data": "test", "max_iter": 8, "metrics": name == "confusion_search"}
    config |= PROBLEMS.get(f"{name}={level.value}", {})
    witness = WITNESS.get(f"{name}={level.value}", level.witness)
    assert witness is not None
    counted = [_counters(solve, levels, config) for levels in (arm, base)]
    assert witness in counted[0]
    assert counted[0][witness] != counted[1][witness]


_COUNTED: dict[str, dict[str, float]] = {}


def _counters(solve, levels, config):
    """Counts of an arm, made once: many levels have the same base."""
    key = repr((sorted(levels.items()), sorted(config.items())))
    if key not in _COUNTED:
        _COUNTED[key] = solve(levels, kind="counting", **config).counters()
    return _COUNTED[key]


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


def test_declarations_keep_the_contract():
    assert contract_problems(Probe1D) == []


@pytest.mark.parametrize(
    ("levels", "names"),
    [
        ({"active_set": "pair", "csc_layout": "off"}, ("active_set", "csc_layout")),
        ({"csc_layout": "on", "label_free": "off"}, ("csc_layout", "label_free")),
        ({"precision": "block", "csc_layout": "off"}, ("precision", "csc_layout")),
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


@pytest.mark.parametrize("size", [0, -3, 2.5])
def test_a_slab_size_that_is_no_positive_number_is_refused(size):
    with pytest.raises(ConfigError, match="slab_size"):
        SPACE.legal({"slab_size": size})


def test_baselines_of_the_stop_test_follow_the_solver():
    stops = [SPACE.complete({"solver": solver})["consistent_stop"] for solver in ("naive", "late", "newton")]
    assert stops == ["seed", "mismatch", "scaled"]


CHAIN = [
    {"consistent_stop": "scaled"},
    {"skip_zero_grad": "exact"},
    {"cache_row_idx": "on"},
    {"label_free": "on"},
    {"csc_layout": "on"},
    {"compile": "on"},
    {"active_set": "pair"},
    {"warm_start": "on"},
    {"precision": "block"},
    {"confusion_search": "on"},
]


@pytest.mark.parametrize("solver", ["naive", "late"])
def test_the_whole_chain_is_legal_from_both_starts(solver):
    levels = SPACE.complete({"solver": solver})
    for step in CHAIN:
        levels = SPACE.closure(step, onto=levels)
    assert all(levels[name] == value for step in CHAIN for name, value in step.items())
    assert levels["solver"] == solver
