"""Options that stand in a sweep's files: what makes trials comparable, and what a manifest may hold."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import Field, fields, replace
from typing import Any

import pytest
from planned_sweeps import sweep
from pydantic import TypeAdapter, ValidationError

from perfsweep.fields import choices_of, default_of
from perfsweep.pipelines.store.options import MeasureConfig, ProfileConfig, TrackingConfig

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
    ("own", "variant", "folder"),
    [
        ({"hook": "off", "debug_log": "on"}, "hook off, debug log on", "torch-hook-off-debug-log-on"),
        ({"hook": "both", "debug_log": "both"}, "", "torch"),
    ],
)
def test_what_is_unusual_about_a_profile_is_in_the_name_of_its_folder(
    own: dict, variant: str, folder: str
) -> None:
    found = ProfileConfig(tool="torch", **own)
    assert (found.variant, found.folder_name) == (variant, folder)


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
