"""The plan of a sweep as data: weights, versions, columns, and what its names lead to."""

from __future__ import annotations

from typing import Any

import pytest
from planned_sweeps import FAST, NAIVE, arm, effect, manifest, pack, sweep
from pydantic import ValidationError

from perfsweep.pipelines.store.records import Arm, Pack, Version
from perfsweep.pipelines.store.schema import Declared, DeclaredLevel, Sweep
from perfsweep.workloads.declarations import Parity

C, D = "c" * 16, "d" * 16
ENVIRONMENT = {"interpreter": "p", "prefix": "", "python": "3", "abi": "", "keys": {"torch": "2.1"}}


def version(digest: str, environment: dict | None = None, **levels: str) -> Version:
    own = {"config": {}, "code": f"code of {digest}", "environment": environment}
    return Version(levels=levels or {"commit": digest}, digest=digest, **own)


@pytest.mark.parametrize(
    ("pairs", "weights"),
    [
        ([(FAST, NAIVE)], {FAST: 1.0, NAIVE: -1.0}),
        ([(FAST, NAIVE), (D, C)], {FAST: 0.5, NAIVE: -0.5, D: 0.5, C: -0.5}),
        ([(FAST, NAIVE), (C, NAIVE)], {FAST: 0.5, C: 0.5, NAIVE: -1.0}),
        ([(FAST, NAIVE), (C, FAST)], {FAST: 0.0, NAIVE: -0.5, C: 0.5}),
    ],
)
def test_an_effect_is_the_mean_of_its_pairs(pairs: list, weights: dict) -> None:
    assert effect(*pairs).weights == weights


def test_a_contrast_has_its_own_weights() -> None:
    assert effect((FAST, NAIVE), contrast={C: 0.25, D: -0.25}).weights == {C: 0.25, D: -0.25}


def test_a_packs_arms_are_in_one_order_whatever_its_first_round_is() -> None:
    assert pack(D, NAIVE, C).arms == (NAIVE, C, D)
    assert Pack(id="p000", orders=(), start="fork").arms == ()


def test_an_arms_levels_have_the_class_that_they_have_beside_the_others() -> None:
    levels = {"amp": (DeclaredLevel(value="off"), DeclaredLevel(value="on", witness="casts"))}
    loosened = {FAST: {"amp": Parity.STOCHASTIC}}
    declared = Declared(unit="rows", shape="steps", checks=(), levels=levels, loosened=loosened)
    found = declared.levels_of(arm(FAST, levels={"amp": "on"}))["amp"]
    assert (found.value, found.witness, found.parity) == ("on", "casts", Parity.STOCHASTIC)
    assert declared.levels_of(arm(NAIVE, levels={"amp": "on"}))["amp"].parity is Parity.EXACT


def test_a_version_is_called_by_its_levels_and_holds_its_packages() -> None:
    both = version("d", {**ENVIRONMENT, "installed": "digest"}, commit="v2", environment_="new")
    assert (both.name, both.installed) == ("commit=v2, environment_=new", "digest")
    assert version("d").installed == ""


def test_an_arm_runs_its_version_and_the_sweeps_code_without_one() -> None:
    plan = sweep(versions=(version("v1"), version("v2", ENVIRONMENT)))
    first, second, own = arm(C, version="v1"), arm(D, version="v2"), arm(NAIVE)
    assert [plan.code_of(one) for one in (first, second, own)] == ["code of v1", "code of v2", "c"]
    assert [plan.keys_of(one) for one in (first, second, own)] == [{}, {"torch": "2.1"}, {}]
    assert plan.factors == {"torch"}
    assert sweep(versions=(version("v1"),)).factors == frozenset()


def test_levels_that_the_sweep_provides_are_not_the_workloads() -> None:
    found = sweep(versions=(version("v1"),)).workload_levels(arm(C, levels={"amp": "on", "commit": "v1"}))
    assert found == {"amp": "on"}


@pytest.mark.parametrize(
    ("nodes", "each", "placement", "world", "beside"),
    [
        (1, None, "", 4, 4),
        (1, 2, "", 4, 2),
        (2, None, "2 nodes", 4, 2),
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
    [
        ({}, ("peak",)),
        ({"stall": True}, ("peak", "stall")),
        (TARGET, ("peak", "target", "target_steps")),
        ({"stall": True, **TARGET}, ("peak", "stall", "target", "target_steps")),
    ],
)
def test_columns_are_those_chosen_and_those_measured_on_request(measure: dict, columns: tuple) -> None:
    assert sweep(measure, report={"columns": ["peak"]}).columns == columns


def test_plans_are_the_same_measurement_whatever_reports_show() -> None:
    def shown(**own: Any):
        return manifest(sweep=own)

    assert shown().measures_the_same(shown(report={"columns": ["peak"]}, price="3 EUR"))
    assert not shown().measures_the_same(shown(measure={"rounds": 99}))
    assert not shown().measures_the_same(manifest(arm(NAIVE)))


def test_a_changed_copy_finds_its_own_arms_and_packs() -> None:
    plan = manifest()
    assert (plan.arm(FAST).label, plan.pack("p000").id, plan.arm_names[FAST]) == (
        "amp=bf16",
        "p000",
        "amp=bf16",
    )
    other = plan.model_copy(update={"arms": (arm(NAIVE), arm(C, "new")), "packs": (pack(C, id="p007"),)})
    assert other.arm(C).label == "new" and other.pack("p007").arms == (C,)
    assert other.arm_names == {NAIVE: "naive", C: "new"}
    with pytest.raises(KeyError):
        other.arm(FAST)


def test_an_arm_has_the_name_that_the_sweep_gave_it() -> None:
    arms: list[Arm] = [arm(NAIVE, "baseline"), arm(FAST, "amp=bf16"), arm(C, "amp=fp16")]
    named = effect((FAST, NAIVE), design="arms").model_copy(update={"toggle": "my arm"})
    assert manifest(*arms, effects=(named, effect((C, NAIVE)))).arm_names == {
        NAIVE: "naive",
        FAST: "my arm",
        C: "amp=fp16",
    }


def test_sweeps_kept_before_options_moved_are_read() -> None:
    old = sweep().model_dump()
    moved = Sweep.model_validate({**old, "measure": {"rounds": 9}, "margin": 0.125})
    assert (moved.measure.margin, moved.measure.rounds) == (0.125, 9)
    kept = {"toggle": "commit", "level": "v1", "digest": "d", "code": "c", "config": {}}
    assert Version.model_validate(kept) == Version(
        levels={"commit": "v1"}, digest="d", code="c", config={}, sources="d"
    )


def test_a_deep_copy_of_a_plan_shares_no_arm_and_a_plain_one_does() -> None:
    plan = manifest()
    assert plan.model_copy(deep=True).arms[0].levels is not plan.arms[0].levels
    assert plan.model_copy().arms[0] is plan.arms[0]


def test_a_value_with_a_field_that_nobody_knows_is_refused() -> None:
    with pytest.raises(ValidationError, match="toggel"):
        effect((FAST, NAIVE), toggel="amp")
