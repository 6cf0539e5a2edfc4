"""The plan of a sweep as data: weights, versions, columns, and what its names lead to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from planned_sweeps import FAST, NAIVE, arm, effect, manifest, sweep
from pydantic import TypeAdapter, ValidationError

from perfsweep.pipelines.store.records import Failure, Kind, TrialRecord, TrialSpec, Version
from perfsweep.pipelines.store.schema import Pack
from perfsweep.pipelines.store.trial_schema import REPEAT, Arm

C, D = "c" * 16, "d" * 16
ENVIRONMENT = {"interpreter": "p", "prefix": "", "python": "3", "abi": "", "keys": {"torch": "2.1"}}


def version(digest: str, environment: dict | None = None, **levels: str) -> Version:
    own = {"config": {}, "code": f"code of {digest}", "environment": environment}
    return Version(levels=levels or {"commit": digest}, digest=digest, **own)


@pytest.mark.parametrize(
    ("pairs", "weights"),
    [
        ([(FAST, NAIVE), (D, C)], {FAST: 0.5, NAIVE: -0.5, D: 0.5, C: -0.5}),
        ([(FAST, NAIVE), (C, FAST)], {FAST: 0.0, NAIVE: -0.5, C: 0.5}),
    ],
)
def test_an_effect_is_the_mean_of_its_pairs(pairs: list, weights: dict) -> None:
    assert effect(*pairs).weights == weights


def test_an_arm_runs_its_version_and_the_sweeps_code_without_one() -> None:
    plan = sweep(versions=(version("v1"), version("v2", ENVIRONMENT)))
    first, second, own = arm(C, version="v1"), arm(D, version="v2"), arm(NAIVE)
    assert [plan.code_of(one) for one in (first, second, own)] == ["code of v1", "code of v2", "c"]
    assert [plan.keys_of(one) for one in (first, second, own)] == [{}, {"torch": "2.1"}, {}]
    assert plan.factors == {"torch"}
    assert sweep(versions=(version("v1"),)).factors == frozenset()


@pytest.mark.parametrize(
    ("nodes", "each", "placement", "world", "beside"),
    [
        (1, None, "", 4, 4),
        (2, None, "2 nodes", 5, 3),
        (3, 4, "3 nodes x 4", 12, 4),
        (3, 4, "3 nodes x 4", 2, 2),
    ],
)
def test_ranks_lie_evenly_on_nodes_unless_said_otherwise(
    nodes: int, each: int | None, placement: str, world: int, beside: int
) -> None:
    found = sweep(nodes=nodes, ntasks_per_node=each)
    assert (found.placement, found.ranks_per_node(world)) == (placement, beside)


TARGET = {"target": 0.5, "target_figure": "loss", "target_better": "lower", "target_steps": 100}


@pytest.mark.parametrize(
    ("measure", "columns"),
    [({}, ("peak",)), ({"stall": True, **TARGET}, ("peak", "stall", "target", "target_steps"))],
)
def test_columns_are_those_chosen_and_those_measured_on_request(measure: dict, columns: tuple) -> None:
    assert sweep(measure, report={"columns": ["peak"]}).columns == columns


def test_plans_are_the_same_measurement_whatever_reports_show() -> None:
    def shown(**own: Any):
        return manifest(sweep=own)

    assert shown().measures_the_same(shown(report={"columns": ["peak"]}, price="3 EUR"))
    assert not shown().measures_the_same(shown(measure={"rounds": 99}))
    assert not shown().measures_the_same(manifest(arm(NAIVE)))


def test_an_arm_has_the_name_that_the_sweep_gave_it() -> None:
    arms: list[Arm] = [arm(NAIVE, "baseline"), arm(FAST, "amp=bf16"), arm(C, "amp=fp16")]
    named = effect((FAST, NAIVE), design="arms").model_copy(update={"toggle": "my arm"})
    assert manifest(*arms, effects=(named, effect((C, NAIVE)))).arm_names == {
        NAIVE: "naive",
        FAST: "my arm",
        C: "amp=fp16",
    }


def spec(plan: Any = None, of: str = FAST, **own: Any) -> TrialSpec:
    plan = plan or manifest(sweep={"measure": {"seed": 40, "iterations": 30}, "nodes": 2})
    return plan.sweep.trial_spec(plan.arm(of), Kind.TIMING, "p000", Path("cache"), **own)


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
    ("type", "final"), [("ConfigError", True), ("JobOutOfMemory", True), ("OutOfMemoryError", False)]
)
def test_a_mistake_is_made_once(type: str, final: bool) -> None:
    failure = Failure(type=type, message="first line\nsecond")
    assert failure.is_final is final
    assert failure.text == f"{type}: first line"


@pytest.mark.parametrize(
    ("field", "value"), [("units", float("nan")), ("region_ns", -1), ("peak_bytes", 2**64)]
)
def test_an_amount_that_cannot_be_does_not_fit_a_record(field: str, value: float) -> None:
    whole = {"arm": FAST, "kind": "timing", "pack": "p000", "round": 0, "attempt": 0, "outcome": "ok"}
    with pytest.raises(ValidationError, match=field):
        TypeAdapter(TrialRecord).validate_python({**whole, field: value})


@pytest.mark.parametrize("name", ["../../x", "/etc", ""])
def test_what_names_a_folder_leads_to_no_other(name: str) -> None:
    with pytest.raises(ValidationError, match="id"):
        TypeAdapter(Arm).validate_python({"id": name, "label": "x", "levels": {}})
    with pytest.raises(ValidationError, match="id"):
        Pack(id=name, orders=(), start="fork")
