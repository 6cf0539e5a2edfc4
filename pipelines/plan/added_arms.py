"""Arms that a plan adds to those of its designs: placebos, and batches that wait in memory."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from typing import Any

from perfsweep.pipelines.plan.designs import refusal
from perfsweep.pipelines.store.records import IDEAL_LOADER, PLACEBO, Arm, Effect, Refused
from perfsweep.pipelines.trial.identity import arm_id
from perfsweep.workloads.api import Declaration, Toggle


def ideal_arm(cls: type[Declaration], base: Arm, workload: str, config: Any, code: str) -> Arm | Refused:
    """Make the arm, or say why the workload has none."""
    toggle = _loader_toggle(cls)
    if toggle is None:
        return refusal(
            IDEAL_LOADER, "", "", f"measure.stall: {cls.__name__} has no loader whose batches could be kept"
        )
    value = toggle.levels[1].value
    if base.version or base.levels.get(toggle.name) == value:
        why = "cannot go with versions of the code" if base.version else f"the baseline has {value} batches"
        return refusal(IDEAL_LOADER, toggle.name, value, f"measure.stall: {why}")
    levels = {**base.levels, toggle.name: value}
    own = f"{toggle.name}={value}"
    before = [] if base.label == "baseline" else [base.label]
    return Arm(id=arm_id(workload, config, levels, code), label=",".join([*before, own]), levels=levels)


def _loader_toggle(cls: type[Declaration]) -> Toggle | None:
    """The toggle with an ideal loader; one of the workload comes before an optional one of the same name."""
    own = {toggle.name for toggle in cls.toggles}
    every = (*cls.toggles, *(toggle for toggle in cls.on_request if toggle.name not in own))
    return next((toggle for toggle in every if toggle.ideal_loader), None)


def placebo(reference: Arm, number: int) -> Arm:
    """The baseline once more, with junk in its memory, as an arm of its own."""
    identity = hashlib.sha256(f"{reference.id} placebo {number}".encode()).hexdigest()[:16]
    return dataclasses.replace(reference, id=identity, label=f"placebo {number}", placebo=number)


def added_effect(arm: Arm, base: Arm) -> Effect:
    """The effect of an added arm: of a placebo its number, else of the level that its base has not."""
    design, toggle, level = PLACEBO, PLACEBO, str(arm.placebo)
    if not arm.placebo:
        design = IDEAL_LOADER
        toggle, level = next((n, str(v)) for n, v in arm.levels.items() if base.levels.get(n) != v)
    pairs = ((arm.id, base.id),)
    identity = hashlib.sha256(json.dumps([design, pairs]).encode()).hexdigest()[:12]
    return Effect(id=identity, design=design, toggle=toggle, level=level, pairs=pairs)
