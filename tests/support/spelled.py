"""Claims and toggles in a line each, as a test's table spells them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from workloads.api import Claim, Level, Toggle


def claims(declared: Iterable[Claim]) -> list[str]:
    """A line for each claim: section, beginning of the text, and what it promises of which arms."""
    return [f"{one.section} | {one.text[:48].strip()} | {promised(one)}" for one in declared]


def promised(claim: Claim) -> str:
    """Figure or word, bounds, arms, what they stand against, and of which configuration."""
    what = {"speedup": "time", "memory": "memory", "predicate": claim.figure or "a rule"}.get(claim.kind, "")
    bounds = [
        claim.low is not None and f">= {claim.low:.4g}",
        claim.high is not None and f"<= {claim.high:.4g}",
    ]
    parts = [what, claim.word, *bounds, ", ".join(map(spelled, claim.arms))]
    if claim.against:
        parts.append(f"against {spelled(claim.against)}")
    if claim.setting:
        parts.append(f"where {spelled(claim.setting)}")
    return " ".join(str(part) for part in parts if part)


def spelled(levels: Mapping[str, Any]) -> str:
    """Levels of toggles, or values of fields, in the order in which they are written."""
    return " ".join(f"{name}={listed(value)}" for name, value in levels.items()) or "baseline"


def listed(value: Any) -> str:
    """One value, or several that will do."""
    return "/".join(map(str, value)) if isinstance(value, tuple) else str(value)


def levels(toggles: Iterable[Toggle]) -> list[str]:
    """A line for each level that differs from the toggle's first one in more than its value."""
    lines = []
    for toggle in toggles:
        numbers = [("+", toggle.numbers.like)] if toggle.numbers else []
        for name, level in [*((one.value, one) for one in toggle.levels), *numbers]:
            if says := implied(level):
                lines.append(f"{toggle.name}={name}: {says}")
    return lines


def implied(level: Level) -> str:
    """What choosing a level implies, and which counter shows that it acts."""
    parts = [f"moves {level.witness}"] if level.witness else []
    for word, given in (
        ("needs", level.requires),
        ("one of", level.requires_any),
        ("not with", level.conflicts),
        ("sets", level.env),
    ):
        if given:
            parts.append(f"{word} {spelled(given)}")
    parts += [f"{level.ranks} ranks"] * (level.ranks > 1) + ["on each GPU"] * level.per_gpu
    return ", ".join(parts)


def entries(table: str, short: Mapping[str, str]) -> list[str]:
    """Entries of a test's table: one in a line, and what begins with three dots goes on with the last.

    Words in braces stand for what `short` has for them.
    """
    lines = [line.strip() for line in table.strip().splitlines()]
    joined = "\n".join(lines).replace("\n... ", " ")
    for word, long in short.items():
        joined = joined.replace(f"{{{word}}}", long)
    return joined.splitlines()
