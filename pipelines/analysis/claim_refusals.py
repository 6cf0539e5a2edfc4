"""Why a claim cannot be ruled on here: only for reasons that the device's facts bear out.

A claim, or each of its arms through a level, may refuse a device with a sentence of its own. That sentence
proves nothing: an obstacle is one that stands on this device and whose removal, with all others removed too,
is what it takes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from functools import reduce

from pipelines.statistics.verdicts import Obstacle
from workloads.api import Claim, Device, Levels, Toggle


def of(claim: Claim, toggles: Sequence[Toggle], device: Device) -> tuple[Obstacle, ...]:
    """The obstacles that stand between a claim and a ruling on this device; none where nothing refuses it.

    A claim that speaks of no arm and gives no bound is a rule, on any device.
    """
    if is_rule(claim):
        return (Obstacle.A_RULE,)
    if not refusal(claim, toggles, device):
        return ()
    standing = [obstacle for obstacle in Obstacle if obstacle.stands(device) and obstacle in LIFTED]
    needed = [
        one
        for one in standing
        if refusal(claim, toggles, lifted(device, (other for other in standing if other is not one)))
    ]
    return tuple(needed or standing)


def is_rule(claim: Claim) -> bool:
    """Whether a claim says how to measure, or what else to compute, instead of what comes out."""
    return not claim.arms and claim.figure is None and claim.low is None and claim.high is None


def refusal(claim: Claim, toggles: Sequence[Toggle], device: Device) -> str | None:
    """Why a device can rule on no arm of a claim, in the words of the claim or of its levels; None where it
    can."""
    if reason := claim.unsupported(device):
        return reason
    reasons = [_refused(levels, toggles, device) for levels in claim.arms]
    return next(iter(reasons), None) if all(reasons) else None


def _refused(levels: Levels, toggles: Sequence[Toggle], device: Device) -> str | None:
    by_name = {toggle.name: toggle for toggle in toggles}
    chosen = [(name, by_name[name].level(value)) for name, value in levels.items() if name in by_name]
    found = [
        f"{name}={level.value} {reason}" for name, level in chosen if (reason := level.unsupported(device))
    ]
    return found[0] if found else None


def in_words(obstacles: Iterable[Obstacle]) -> str:
    """Such as ``needs a CUDA device and needs several devices``."""
    return " and ".join(obstacle.value for obstacle in obstacles)


LIFTED: dict[Obstacle, dict[str, object]] = {
    Obstacle.NO_CUDA: {"type": "cuda", "memory_bytes": 10**12, "name": "any"},
    Obstacle.NO_TENSOR_CORES: {"capability": (10, 0)},
    Obstacle.ONE_DEVICE: {"count": 8},
    Obstacle.NO_COMPILER: {"compiler": True},
}
"""The facts of a device that an obstacle is about, as they are where it does not stand."""


def lifted(device: Device, obstacles: Iterable[Obstacle]) -> Device:
    """A device without some obstacles."""
    return reduce(lambda one, obstacle: dataclasses.replace(one, **LIFTED[obstacle]), obstacles, device)  # type: ignore[arg-type]
