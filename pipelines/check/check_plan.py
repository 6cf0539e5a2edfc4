"""What a check runs: every level against its base, each arm once, and few iterations of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Container, Mapping, Sequence
from typing import Any

from perfsweep.pipelines.config.types import (
    DesignConfig,
    MeasureConfig,
    RunCommand,
    SweepCommand,
    SweepConfig,
)
from perfsweep.pipelines.plan import plan
from perfsweep.pipelines.store.records import Manifest, Pack
from perfsweep.workloads.api import Device

ITERATIONS = 12
"""Of an evidence trial: enough for a mistake to show, and to let a workload's first epoch end."""


def plan_check(
    command: RunCommand,
    device: Device,
    given: Container[str] = (),
    toggles: Sequence[str] | None = None,
    levels: Mapping[str, Sequence[Any]] | None = None,
) -> Manifest:
    """Every level against its base, each arm once; arms that need their own process in their own pack."""
    own = {one.name: getattr(command.measure, one.name) for one in dataclasses.fields(MeasureConfig)}
    measure = MeasureConfig(
        rounds=1,
        iterations=4,
        warmup_max=6,
        evidence_iterations=ITERATIONS,
        counting_iterations=4,
        timeout_s=120,
        repeats=0,
    )
    chosen = {name: value for name, value in own.items() if name in given and name != "rounds"}
    measure = dataclasses.replace(measure, **chosen)
    asked = {name: list(values) for name, values in (levels or {}).items()}
    design = DesignConfig("one_at_a_time", toggles=list(toggles) if toggles else None, levels=asked)
    sweep = SweepConfig(name="check", designs=[design])
    whole = SweepCommand(
        workload=command.workload, toggles=command.toggles, measure=measure, sweep=sweep, name="check"
    )
    whole.cluster.arms_per_pack = 10**6
    cls, _ = plan.load_workload(command.workload)
    if not cls.toggles:
        return plan.single_arm(whole, device)
    manifest = plan.make_plan(whole, device)
    groups: dict[str, list[str]] = {}
    for arm in manifest.arms:
        groups.setdefault("exec" if cls.needs_exec(arm.levels) else "fork", []).append(arm.id)
    packs = [
        Pack(id=f"p{number:03d}", orders=(tuple(arms),), start=start)
        for number, (start, arms) in enumerate(groups.items())
    ]
    return manifest.model_copy(update={"packs": tuple(packs)})
