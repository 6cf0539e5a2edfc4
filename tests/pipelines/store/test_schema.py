"""The plan of a sweep as data: weights, versions, columns, names, and options in its files."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import MISSING, Field, fields, replace
from pathlib import Path
from typing import Any

import pytest
from planned_sweeps import FAST, NAIVE, arm, effect, manifest, pack, sweep
from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticUndefined

from perfsweep.fields import choices_of, default_of
from perfsweep.pipelines.store import profiles, schema, trial_schema
from perfsweep.pipelines.store.options import MeasureConfig, ProfileConfig, ReportConfig, TrackingConfig
from perfsweep.pipelines.store.records import Kind, TrialRecord, TrialSpec, Version
from perfsweep.pipelines.store.schema import Pack
from perfsweep.pipelines.store.trial_schema import Arm

C = "c" * 16


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


def test_plans_are_the_same_measurement_whatever_reports_show() -> None:
    def shown(**own: Any):
        return manifest(sweep=own)

    assert shown().measures_the_same(shown(report={"columns": ["peak"]}, price="3 EUR"))
    assert not shown().measures_the_same(shown(measure={"rounds": 99}))
    assert not shown().measures_the_same(manifest(arm(NAIVE)))


def test_a_copy_of_a_plan_has_arms_and_packs_of_its_own() -> None:
    plan = manifest()
    plan.arm(NAIVE), plan.pack("p000"), plan.arm_names
    copy = plan.model_copy(update={"arms": (arm(NAIVE, "other"),), "packs": (pack(FAST, NAIVE, rounds=2),)})
    assert (copy.arm(NAIVE).label, copy.pack("p000").orders) == ("other", ((FAST, NAIVE),) * 2)
    assert [*copy.arm_names] == [NAIVE]


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


def test_what_a_file_does_not_say_is_nothing_but_for_a_few_fields() -> None:
    said, nothing = {}, (MISSING, PydanticUndefined, None, 0, "", (), {})
    for module in (trial_schema, schema, profiles):
        for name, cls in vars(module).items():
            if getattr(cls, "__module__", "") == module.__name__:
                own = getattr(cls, "__dataclass_fields__", None) or getattr(cls, "model_fields", {})
                said |= {f"{name}.{key}": one.default for key, one in own.items() if key[0] != "_"}
    versioned = ("TrialSpec", "TrialRecord", "Sweep", "ProfileSpec", "Profile")
    more = {"DeclaredLevel.parity": "exact", "Declared.data_phases": ("data",), "TrialRecord.settled": True}
    more |= {"Sweep.tracking": TrackingConfig(), "Sweep.report": ReportConfig(), "Sweep.nodes": 1}
    more |= {"TrialSpec.world": 1, **{f"{name}.schema_version": 1 for name in versioned}}
    assert {key: default for key, default in said.items() if default not in nothing} == more


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


DEFAULT = MeasureConfig()

METHOD = {
    "iterations": None,
    "jobs": 1,
    "discard_s": None,
    "warmup_max": 400,
    "evidence_iterations": 24,
    "counting_iterations": 6,
    "threads": 1,
    "seed": 0,
    "memory_gib": None,
    "allocator": "steady",
    "region_s": 0.08,
    "turn_s": 0.009,
}
"""Options that are part of the method, with their defaults."""


def other(one: Field[Any]) -> Any:
    """Another value of an option than its default."""
    default, choices = default_of(one), choices_of(one)
    if choices:
        return next(choice for choice in choices if choice != default)
    if isinstance(default, (bool, str)):
        return not default if isinstance(default, bool) else f"{default}x"
    return 7 if default is None else default + 1


@pytest.mark.parametrize("one", fields(DEFAULT), ids=lambda one: one.name)
def test_an_option_of_the_method_makes_trials_incomparable_and_no_other_does(one: Field[Any]) -> None:
    changed = replace(DEFAULT, **{one.name: other(one)})
    assert (changed.method != DEFAULT.method) == (one.name in METHOD)


def test_the_defaults_of_the_method_are_the_ones_records_were_measured_with() -> None:
    """The digest leaves defaults out, so changing one must raise the schema version.

    Else old records would pass for measured with the new one.
    """
    assert {one.name: default_of(one) for one in fields(DEFAULT) if one.name in METHOD} == METHOD


def test_a_sweep_of_another_version_keeps_its_tracking() -> None:
    found = sweep(tracking={"mode": "disabled", "colour": "red"})
    assert found.tracking == TrackingConfig(mode="disabled")


def taken(cls: type, value: float) -> set[str]:
    """Options that are numbers and may be this one."""
    adapter, found = TypeAdapter(cls), set()
    for one in fields(cls):
        if str(one.type).removesuffix(" | None") in ("int", "float"):
            with suppress(ValidationError):
                adapter.validate_python({one.name: value})
                found.add(one.name)
    return found


def test_nothing_is_less_than_none_and_what_has_to_be_there_is_not_none() -> None:
    every = {cls: taken(cls, 1_000_000) for cls in (MeasureConfig, ProfileConfig, TrackingConfig)}
    assert all(every.values())
    assert {cls: taken(cls, -1) for cls in every} == {
        MeasureConfig: {"seed", "target"},
        ProfileConfig: set(),
        TrackingConfig: set(),
    }
    assert {cls: taken(cls, 0) for cls in every} == {
        MeasureConfig: {"seed", "target", "repeats", "placebo"},
        ProfileConfig: {"wait", "warmup"},
        TrackingConfig: set(),
    }
    assert taken(MeasureConfig, 2) ^ taken(MeasureConfig, 5) == {
        "warmup_max",  # what settles is told from five
        "seeds",
        "target_seeds",
    }, "an interval over seeds takes three"
    assert taken(TrackingConfig, 1.5) == {"patience_s"}, "a share is no more than the whole"


@pytest.mark.parametrize(
    ("own", "planned", "server"),
    [
        ({"rounds": 10, "servers": 4}, 10, 2),
        ({"rounds": 3, "servers": 4}, 3, 1),
        ({"rounds": 10, "rounds_max": 40, "servers": 10, "precision": 0.1}, 40, 1),
        ({"rounds": 10, "rounds_max": 4, "servers": 10, "budget_s": 9.0}, 10, 1),
    ],
    ids=["servers", "few rounds", "until it is precise", "at least as planned"],
)
def test_rounds_share_servers(own: dict, planned: int, server: int) -> None:
    found = MeasureConfig(**own)
    assert (found.rounds_planned, found.rounds_per_server) == (planned, server)
    assert found.adaptive is bool({"precision", "budget_s"} & own.keys())
