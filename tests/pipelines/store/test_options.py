"""Options that stand in a sweep's files: what makes trials comparable, and what a manifest may hold."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
from pydantic import ValidationError

from pipelines.store.options import MeasureConfig, TrackingConfig
from pipelines.store.schema import Sweep
from slurm.fields import default_of

DEFAULT = MeasureConfig()

METHOD = {
    "iterations": 60,
    "jobs": 1,
    "discard_s": None,
    "warmup_max": 400,
    "evidence_iterations": 24,
    "counting_iterations": 6,
    "threads": 1,
    "seed": 0,
    "isolation": "fresh",
    "memory_gib": None,
    "allocator": "steady",
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
    "isolation": "resident",
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
    "turns": 6,
}
"""Another value of every option."""


@pytest.mark.parametrize("name", sorted(OTHER))
def test_an_option_of_the_method_makes_trials_incomparable_and_no_other_does(name: str) -> None:
    changed = replace(DEFAULT, **{name: OTHER[name]})
    assert (changed.method != DEFAULT.method) == (name in METHOD)


def test_turns_count_where_processes_are_resident() -> None:
    resident = replace(DEFAULT, isolation="resident")
    assert replace(resident, turns=6).method != resident.method


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
    assert properties["isolation"]["enum"] == ["fresh", "resident"]
    assert all(one["description"] for one in properties.values())


def test_a_sweep_of_another_version_keeps_its_margin_and_its_tracking() -> None:
    sweep = _sweep(margin=0.05, tracking={"mode": "disabled", "colour": "red"})
    assert sweep.measure.margin == 0.05
    assert sweep.tracking == TrackingConfig(mode="disabled")


def _sweep(**values: object) -> Sweep:
    return Sweep.model_validate(
        {"name": "s", "workload": "w", "config": {}, "measure": {}, "code": "", "references": {}, **values}
    )


@pytest.mark.parametrize(
    ("own", "planned", "server", "stride"),
    [
        ({"rounds": 10, "servers": 4}, 10, 2, 1),
        ({"rounds": 3, "servers": 4}, 3, 1, 1),
        ({"rounds": 10, "servers": 4, "turns": 5, "isolation": "resident"}, 10, 5, 5),
        ({"rounds": 10, "rounds_max": 40, "servers": 10}, 10, 1, 1),
        ({"rounds": 10, "rounds_max": 40, "servers": 10, "precision": 0.1}, 40, 1, 1),
        ({"rounds": 10, "rounds_max": 4, "servers": 10, "budget_s": 9.0}, 10, 1, 1),
    ],
    ids=["servers", "few rounds", "resident", "as planned", "until it is precise", "at least as planned"],
)
def test_rounds_share_servers_and_processes(own: dict, planned: int, server: int, stride: int) -> None:
    found = MeasureConfig(**own)
    assert (found.rounds_planned, found.rounds_per_server, found.stride) == (planned, server, stride)
    assert found.adaptive is bool({"precision", "budget_s"} & own.keys())
