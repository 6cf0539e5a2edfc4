"""Checks of a workload's declarations when its class is created: all that cannot be meant, as phrases."""

from __future__ import annotations

from collections.abc import Mapping

from perfsweep.workloads.declarations import REPLAY, Check, Choices, Claim, Level, Toggle
from perfsweep.workloads.errors import ConfigError


def declaration_problems(
    toggles: tuple[Toggle, ...], claims: tuple[Claim, ...], checks: tuple[Check, ...]
) -> list[str]:
    """Everything in declarations that cannot be meant, as phrases."""
    return [*toggle_problems(toggles), *claim_problems(claims, toggles), *bound_problems(toggles, checks)]


def bound_problems(toggles: tuple[Toggle, ...], checks: tuple[Check, ...]) -> list[str]:
    """Bounds of levels for checks that do not exist."""
    known = {check.name for check in (REPLAY, *checks)}
    return [
        f"toggle {toggle.name} bounds {name}, which is no check"
        for toggle in toggles
        for level in _all_levels(toggle)
        for name in level.bounds
        if name not in known
    ]


def toggle_problems(toggles: tuple[Toggle, ...]) -> list[str]:
    """Doubled names and levels, and requirements or baselines that name what does not exist."""
    problems = []
    by_name = {toggle.name: toggle for toggle in toggles}
    if len(by_name) < len(toggles):
        problems.append("two toggles share a name")
    for toggle in toggles:
        values = [str(level.value) for level in toggle.levels]
        if len(values) < (1 if toggle.numbers else 2):
            problems.append(f"toggle {toggle.name} has fewer than two levels")
        if len(set(values)) < len(values):
            problems.append(f"toggle {toggle.name} repeats a level")
        for level in _all_levels(toggle):
            for choices in (level.requires, level.requires_any, level.conflicts):
                problems += _choice_problems(f"{toggle.name}={level.value}", choices, by_name)
        for other in toggle.baselines:
            problems += _choice_problems(
                f"a baseline of {toggle.name}", {toggle.name: (other.value,), **other.given}, by_name
            )
    return problems


def claim_problems(claims: tuple[Claim, ...], toggles: tuple[Toggle, ...]) -> list[str]:
    """Claims about toggles or levels that do not exist, and bounds that do not fit the kind."""
    problems = []
    by_name = {toggle.name: toggle for toggle in toggles}
    for claim in claims:
        where = f"claim {claim.source} {claim.section}"
        bounded = claim.low is not None or claim.high is not None
        for arm in (*claim.arms, claim.against):
            problems += _choice_problems(where, {name: (value,) for name, value in arm.items()}, by_name)
        if claim.kind == "qualitative" and claim.word is None:
            problems.append(f"{where} is qualitative and has no word")
        sized = bounded or (claim.kind == "memory" and claim.word is not None)
        if claim.kind in ("speedup", "memory") and not sized:
            problems.append(f"{where} is about {claim.kind} and has neither low nor high")
        if claim.kind == "predicate" and bounded != (claim.figure is not None):
            problems.append(
                f"{where} is a predicate and has bounds without a figure, or a figure without bounds"
            )
        if claim.low is not None and claim.high is not None and claim.low > claim.high:
            problems.append(f"{where} has low above high")
    return problems


def _all_levels(toggle: Toggle) -> list[Level]:
    return [*toggle.levels, *([toggle.numbers.like] if toggle.numbers else [])]


def _choice_problems(where: str, choices: Choices, toggles: Mapping[str, Toggle]) -> list[str]:
    problems = []
    for name, values in choices.items():
        if name not in toggles:
            problems.append(f"{where} names the unknown toggle {name}")
            continue
        if not isinstance(values, tuple):
            problems.append(f"{where} must give the levels of {name} as a tuple")
            continue
        for value in values:
            try:
                toggles[name].level(value)
            except ConfigError as error:
                problems.append(f"{where}: {error}")
    return problems
