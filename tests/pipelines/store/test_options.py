"""Options that stand in a sweep's files: what makes trials comparable, and what a manifest may hold."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from dataclasses import fields, replace

import pytest
from pydantic import TypeAdapter, ValidationError

from perfsweep.fields import default_of
from perfsweep.pipelines.store.options import MeasureConfig, ProfileConfig, ReportConfig, TrackingConfig
from perfsweep.pipelines.store.schema import Sweep

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

OTHER = {
    "iterations": 61,
    "jobs": 2,
    "discard_s": 1.0,
    "warmup_max": 401,
    "evidence_iterations": 25,
    "counting_iterations": 7,
    "threads": 2,
    "seed": 1,
    "memory_gib": 1.0,
    "rounds": 11,
    "timeout_s": 1.0,
    "margin": 0.5,
    "precision": 0.5,
    "budget_s": 1.0,
    "rounds_max": 41,
    "repeats": 3,
    "placebo": 2,
    "servers": 2,
    "allocator": "system",
    "seeds": 6,
    "region_s": 1.0,
    "turn_s": 0.1,
    "look": True,
    "timed_parity": False,
    "stall": True,
    "target": 0.5,
    "target_figure": "accuracy",
    "target_better": "higher",
    "target_every": 5,
    "target_looks": 2,
    "target_steps": 100,
    "target_seeds": 4,
}
"""Another value of every option."""


def test_every_option_of_measuring_has_another_value_here() -> None:
    assert set(OTHER) == {one.name for one in fields(DEFAULT)}
    assert [name for name, value in OTHER.items() if getattr(DEFAULT, name) == value] == []


@pytest.mark.parametrize("name", sorted(OTHER))
def test_an_option_of_the_method_makes_trials_incomparable_and_no_other_does(name: str) -> None:
    changed = replace(DEFAULT, **{name: OTHER[name]})
    assert (changed.method != DEFAULT.method) == (name in METHOD)


def test_trials_that_did_not_take_turns_are_of_another_method() -> None:
    assert DEFAULT.method != hashlib.sha256(b"{}").hexdigest()[:16], "as before there were turns"


def test_the_defaults_of_the_method_are_the_ones_records_were_measured_with() -> None:
    """The digest leaves defaults out, so changing one must raise the schema version.

    Else old records would pass for measured with the new one.
    """
    assert {one.name: default_of(one) for one in fields(DEFAULT) if one.name in METHOD} == METHOD


def test_the_method_is_the_same_before_and_after_it_was_written() -> None:
    sweep = _sweep(measure=MeasureConfig(memory_gib=2, timeout_s=9))
    assert Sweep.model_validate_json(sweep.model_dump_json()).measure.method == sweep.measure.method


def test_a_sweep_with_a_value_out_of_range_is_refused() -> None:
    with pytest.raises(ValidationError, match="rounds"):
        _sweep(measure={"rounds": 0})


def test_a_sweep_with_an_unknown_option_of_measuring_is_refused() -> None:
    with pytest.raises(ValidationError, match="hops"):
        _sweep(measure={"hops": 1})


def test_the_schema_of_a_sweep_describes_every_option_of_measuring() -> None:
    properties = Sweep.model_json_schema()["$defs"]["MeasureConfig"]["properties"]
    assert properties["rounds"]["minimum"] == 1
    assert properties["allocator"]["enum"] == ["steady", "system"]
    assert all(one["description"] for one in properties.values())


def test_a_sweep_of_another_version_keeps_its_margin_and_its_tracking() -> None:
    sweep = _sweep(margin=0.05, tracking={"mode": "disabled", "colour": "red"})
    assert sweep.measure.margin == 0.05
    assert sweep.tracking == TrackingConfig(mode="disabled")


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


def test_an_option_takes_any_word_only_where_that_is_a_name() -> None:
    every = (MeasureConfig, ProfileConfig, TrackingConfig, ReportConfig)
    names = set()
    for cls in every:
        told = TypeAdapter(cls).json_schema()["properties"]
        words = {one.name for one in fields(cls) if str(one.type).startswith(("str", "list"))}
        names |= {name for name in words if "enum" not in str(told[name])}
    assert names == {"target_figure", "slice", "project", "entity", "base_url"}


@pytest.mark.parametrize(
    ("own", "variant", "folder"),
    [
        ({}, "", "torch"),
        ({"hook": "off"}, "hook off", "torch-hook-off"),
        ({"hook": "off", "debug_log": "on"}, "hook off, debug log on", "torch-hook-off-debug-log-on"),
        ({"hook": "both", "debug_log": "both"}, "", "torch"),
    ],
)
def test_what_is_unusual_about_a_profile_is_in_the_name_of_its_folder(
    own: dict, variant: str, folder: str
) -> None:
    found = ProfileConfig(tool="torch", **own)
    assert (found.variant, found.folder_name) == (variant, folder)


def _sweep(**values: object) -> Sweep:
    return Sweep.model_validate(
        {"name": "s", "workload": "w", "config": {}, "measure": {}, "code": "", "references": {}, **values}
    )


@pytest.mark.parametrize(
    ("own", "planned", "server"),
    [
        ({"rounds": 10, "servers": 4}, 10, 2),
        ({"rounds": 3, "servers": 4}, 3, 1),
        ({"rounds": 10, "rounds_max": 40, "servers": 10}, 10, 1),
        ({"rounds": 10, "rounds_max": 40, "servers": 10, "precision": 0.1}, 40, 1),
        ({"rounds": 10, "rounds_max": 4, "servers": 10, "budget_s": 9.0}, 10, 1),
    ],
    ids=["servers", "few rounds", "as planned", "until it is precise", "at least as planned"],
)
def test_rounds_share_servers(own: dict, planned: int, server: int) -> None:
    found = MeasureConfig(**own)
    assert (found.rounds_planned, found.rounds_per_server) == (planned, server)
    assert found.adaptive is bool({"precision", "budget_s"} & own.keys())


def test_memory_is_told_in_gib_and_limited_in_bytes() -> None:
    assert (MeasureConfig(memory_gib=1.5).memory_bytes, DEFAULT.memory_bytes) == (3 * 2**29, None)
