"""What a trial is told, and what of its record is read by everything after it."""

from __future__ import annotations

import time
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from planned_sweeps import FAST, NAIVE, arm, manifest, record
from pydantic import TypeAdapter, ValidationError

from perfsweep.pipelines.store.records import Failure, Kind, Outcome, TrialRecord, TrialSpec, Version
from perfsweep.pipelines.store.schema import Pack
from perfsweep.pipelines.store.trial_schema import REPEAT, Arm


def spec(plan: Any = None, of: str = FAST, **own: Any) -> TrialSpec:
    plan = plan or manifest(sweep={"measure": {"seed": 40, "iterations": 30}, "nodes": 2})
    return plan.sweep.trial_spec(plan.arm(of), Kind.TIMING, "p000", Path("cache"), **own)


def test_a_trial_is_told_what_its_sweep_says_and_where_its_cache_lies() -> None:
    found = spec(round=3, attempt=2)
    assert (found.sweep, found.workload, found.code) == ("toy", "toys", "c")
    assert (found.round, found.attempt, found.pack, found.kind) == (3, 2, "p000", Kind.TIMING)
    assert found.cache_dir == str(Path("cache").absolute())
    assert (found.placement, found.installed, found.world) == ("2 nodes", "", 1)
    assert (spec().round, spec().attempt) == (None, 0)


def test_a_trial_of_a_version_is_told_what_its_code_declares() -> None:
    environment = {"interpreter": "p", "prefix": "", "python": "", "abi": "", "installed": "digest"}
    version = Version(
        levels={"commit": "v2"}, digest="d", code="c2", config={"width": 2}, environment=environment
    )
    levels = {"amp": "off", "commit": "v2"}
    arms = (arm(NAIVE), arm(FAST, levels=levels, own={"amp": "off"}, version="d"))
    plan = manifest(*arms, sweep={"versions": (version,), "config": {"width": 1}})
    of_version, own = spec(plan), spec(plan, NAIVE)
    assert (of_version.config, of_version.code, of_version.installed) == ({"width": 2}, "c2", "digest")
    assert of_version.arm.levels == {"amp": "off"}
    assert (own.config, own.code, own.installed, own.arm) == ({"width": 1}, "c", "", plan.arm(NAIVE))


@pytest.mark.parametrize(("replicate", "seed"), [(0, 40), (3, 43), (REPEAT, 40)])
def test_a_replicate_has_another_seed_and_a_repetition_the_first(replicate: int, seed: int) -> None:
    assert spec(replicate=replicate).seed == seed


@pytest.mark.parametrize(
    ("own", "iterations", "beside"),
    [({}, 30, 1), ({"iterations": 7, "world": 8}, 7, 8), ({"world": 8, "ranks_per_node": 4}, 30, 4)],
)
def test_a_trial_has_the_iterations_and_neighbours_of_its_own(
    own: dict, iterations: int, beside: int
) -> None:
    assert (spec(**own).timed_iterations, spec(**own).beside) == (iterations, beside)


def test_a_record_names_the_trial_that_it_is_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: 20.0)
    monkeypatch.setattr("time.monotonic", lambda: 1000.0)
    told = spec(round=3, attempt=2, server=6, replicate=7)
    found = TrialRecord.of(told, 990.0, outcome=Outcome.OK, units=4.0)
    same = ("kind", "pack", "round", "attempt", "server", "replicate", "code", "placement")
    assert [getattr(found, name) for name in same] == [getattr(told, name) for name in same]
    assert (found.arm, found.method, found.started, found.ended) == (FAST, told.measure.method, 10.0, 20.0)
    assert (found.outcome, found.units) == (Outcome.OK, 4.0)


@pytest.mark.parametrize("moved_s", [5 * 3600.0, -8 * 3600.0])
def test_a_trial_costs_what_it_took_where_the_clock_is_set_meanwhile(
    monkeypatch: pytest.MonkeyPatch, moved_s: float
) -> None:
    began, real = time.monotonic() - 2.0, time.time
    monkeypatch.setattr("time.time", lambda: real() + moved_s)
    found = TrialRecord.of(spec(), began, outcome=Outcome.OK)
    assert 2.0 <= found.ended - found.started + 1e-3 < 60.0


@pytest.mark.parametrize(("own", "draw"), [({}, None), ({"server": 4}, 4)])
def test_trials_share_their_draw_by_server(own: dict, draw: int | None) -> None:
    assert record(FAST, **own).draw == draw


def test_figures_are_per_unit_and_verdicts_are_on_what_others_left_of_the_time() -> None:
    found = record(FAST, region_ns=100, lost_ns=20, region_cpu_ns=60, units=4.0)
    assert (found.ns_per_unit, found.wall_ns_per_unit, found.cpu_ns_per_unit) == (20.0, 25.0, 15.0)


@pytest.mark.parametrize(
    ("type", "final"), [("ConfigError", True), ("JobOutOfMemory", True), ("OutOfMemoryError", False)]
)
def test_a_mistake_is_made_once(type: str, final: bool) -> None:
    failure = Failure(type=type, message="first line\nsecond")
    assert failure.is_final is final
    assert failure.text == f"{type}: first line"


def test_what_was_not_measured_is_nothing_and_no_figure() -> None:
    found = record(FAST, outcome=Outcome.FAILED)
    figures = {one.name: getattr(found, one.name) for one in fields(found)}
    for said in ("arm", "kind", "pack", "outcome", "schema_version"):
        del figures[said]
    assert figures.pop("settled"), "nothing to warn of"
    assert {name: value for name, value in figures.items() if value} == {}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("units", -5.0),
        ("units", float("nan")),
        ("units", float("inf")),
        ("region_ns", -1),
        ("peak_bytes", 2**64),
        ("lost_ns", -1),
    ],
)
def test_an_amount_that_cannot_be_does_not_fit_a_record(field: str, value: float) -> None:
    whole = {"arm": FAST, "kind": "timing", "pack": "p000", "round": 0, "attempt": 0, "outcome": "ok"}
    with pytest.raises(ValidationError, match=field):
        TypeAdapter(TrialRecord).validate_python({**whole, field: value})


@pytest.mark.parametrize("name", ["../../x", "/etc", "a/b", "", ".."])
def test_what_names_a_folder_leads_to_no_other(name: str) -> None:
    with pytest.raises(ValidationError, match="id"):
        TypeAdapter(Arm).validate_python({"id": name, "label": "x", "levels": {}})
    with pytest.raises(ValidationError, match="id"):
        Pack(id=name, orders=(), start="fork")
