"""Every level of digits and Probe1D acts, keeps its class and leaves nothing where it ran."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from perfsweep.pipelines.store.planned import load_workload
from perfsweep.pipelines.trial.machine import environment
from perfsweep.testing.conformance import check_workload

COMPILED = {"compile", "compile_cache"}
"""Toggles whose levels take a compiler's minutes: one row has them, and test_compile.py of digits."""


@dataclass(frozen=True)
class Row:
    """One configuration of a workload, small enough for tests, and the levels that act in it."""

    workload: str
    values: tuple[str, ...] = ()
    levels: dict[str, list[Any]] = field(default_factory=dict)

    def __str__(self) -> str:
        return "-".join([self.workload, *self.levels] if self.levels else [self.workload])


PROFILE = ("workload.data=profile", "workload.max_iter=2", "workload.metrics=false")
ELSEWHERE = [
    Row("probe1d", ("workload.data=test", "workload.storage_dtype=float16"), {"cast_once": ["on"]}),
    Row("probe1d", (*PROFILE, "workload.slabs=1"), {"chunk_events": [2**18, 2**20, 2**22]}),
    Row("probe1d", (*PROFILE, "workload.slabs=6"), {"slab_size": [32, "all"]}),
    Row("probe1d", ("workload.data=test", "toggles.solver=newton"), {"warm_start": ["on"]}),
]
"""Levels that need more than the smallest configuration to act on."""
SLOW = Row("probe1d", ("workload.data=test", "workload.max_iter=8"), {"compile": ["on"]})


def others(workload: str, *values: str) -> Row:
    """All levels that act on this machine and in no other row."""
    cls, _ = load_workload(workload, {})
    here = environment.device_facts()
    taken = {
        (name, one)
        for row in ELSEWHERE
        if row.workload == workload
        for name in row.levels
        for one in row.levels[name]
    }
    found = {
        toggle.name: [
            level.value
            for level in toggle.levels[1:]
            if level.unsupported(here) is None and (toggle.name, level.value) not in taken
        ]
        for toggle in cls.toggles
        if toggle.name not in COMPILED
    }
    return Row(workload, values, {name: levels for name, levels in found.items() if levels})


SMALLEST = {
    "digits": (
        "workload.width=4",
        "workload.batch_size=400",
        "workload.eval_every=1",
        "workload.checkpoint_every=1",
    ),
    "probe1d": ("workload.data=test", "workload.max_iter=8"),
}


def assert_all_are_held(row: Row, baseline: bool) -> None:
    held = check_workload(row.workload, *row.values, levels=row.levels, baseline=baseline)
    cls, _ = load_workload(row.workload, {})
    due = {f"{name}={level}" for name, levels in row.levels.items() for level in levels}
    # What is the baseline itself beside the levels that it requires has no base to be held against.
    own = {f"{toggle.name}={one.value}" for toggle in cls.toggles for one in toggle.baselines}
    assert set(held.levels) <= due and due - set(held.levels) <= own, held.left_out


@pytest.mark.workloads
@pytest.mark.parametrize("workload", SMALLEST)
def test_a_workload_keeps_its_contract_with_every_level(workload: str) -> None:
    assert_all_are_held(others(workload, *SMALLEST[workload]), baseline=True)


@pytest.mark.workloads
@pytest.mark.parametrize("row", ELSEWHERE, ids=str)
def test_a_level_acts_where_there_is_something_to_act_on(row: Row) -> None:
    assert_all_are_held(row, baseline=False)


@pytest.mark.slow
def test_a_compiled_level_acts_and_keeps_its_class() -> None:
    assert_all_are_held(SLOW, baseline=False)
