"""The arm that `measure.stall` adds: the first reference, on batches that wait in memory."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from perfsweep.pipelines.plan.designs import Refusal
from perfsweep.pipelines.store.records import IDEAL_LOADER, Arm, Effect
from perfsweep.pipelines.trial.identity import arm_id
from perfsweep.workloads.api import Toggle, Workload


def ideal_arm(cls: type[Workload], base: Arm, workload: str, config: Any, code: str) -> Arm | Refusal:
    """Make the arm, or say why the workload has none."""
    toggle = _toggle(cls)
    if toggle is None:
        return Refusal(
            IDEAL_LOADER, "", "", f"measure.stall: {cls.__name__} has no loader whose batches could be kept"
        )
    value = toggle.levels[1].value
    if base.version or base.levels.get(toggle.name) == value:
        why = "cannot go with versions of the code" if base.version else f"the reference has {value} batches"
        return Refusal(IDEAL_LOADER, toggle.name, str(value), f"measure.stall: {why}")
    levels = {**base.levels, toggle.name: value}
    own = f"{toggle.name}={value}"
    beside = [] if base.label == "baseline" else [base.label]
    return Arm(id=arm_id(workload, config, levels, code), label=",".join([*beside, own]), levels=levels)


def ideal_effect(arm: Arm, base: Arm) -> Effect:
    """The effect of a loader that never waits."""
    pairs = ((arm.id, base.id),)
    name, value = next((n, v) for n, v in arm.levels.items() if base.levels.get(n) != v)
    return Effect(
        id=hashlib.sha256(json.dumps([IDEAL_LOADER, pairs]).encode()).hexdigest()[:12],
        design=IDEAL_LOADER,
        toggle=name,
        level=str(value),
        pairs=pairs,
    )


def _toggle(cls: type[Workload]) -> Toggle | None:
    """The toggle that stands for such a loader; one of the workload's own by its name comes before it."""
    own = {toggle.name for toggle in cls.toggles}
    every = (*cls.toggles, *(toggle for toggle in cls.on_request if toggle.name not in own))
    return next((toggle for toggle in every if toggle.ideal_loader), None)
