"""Fractional two-level designs: every toggle at once, in a few of all combinations (Box and Hunter 1961)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from perfsweep.pipelines.plan.arms import Space
from perfsweep.pipelines.plan.designs import (
    Assignment,
    Design,
    Refusal,
    contrast_effect,
    main_effects_and_interactions,
    two_levels,
)
from perfsweep.workloads.api import Levels, LevelValue
from perfsweep.workloads.errors import ConfigError

GENERATORS: dict[int, dict[int, str]] = {
    5: {5: "a b c d abcd"},
    6: {4: "a b c d abc bcd", 6: "a b c d e abcde"},
    7: {4: "a b c d abc bcd acd"},
    8: {4: "a b c d bcd acd abc abd", 5: "a b c d e f abcd abef"},
}
"""By number of toggles and resolution: at 4 interactions are known in groups, from 5 on one by one."""


def fractional(
    space: Space, reference: Levels, axes: Mapping[str, Sequence[Any]], resolution: int | None = None
) -> Design:
    """Main effects and two-way interactions of five to eight toggles from 16 to 64 arms.

    Illegal combinations are left out where the rest still tells main effects apart.

    Raises
    ------
    ConfigError
        No design is known for this number of toggles and resolution, or too many combinations are illegal.
    """
    generators = _generators(len(axes), resolution)
    from pyDOE3 import fracfact  # scipy comes with it, and only this design needs it

    signs = fracfact(generators).astype(int)
    levels = {name: two_levels(space, reference, name, values, "fractional") for name, values in axes.items()}
    arms, legal, refused = _legal(space, reference, levels, signs)
    try:
        terms = main_effects_and_interactions(signs[legal], list(levels))
    except ConfigError as error:
        illegal = f"{len(refused)} of {len(signs)} combinations are illegal"
        why = f" ({illegal}, such as {refused[0].level}: {refused[0].reason})" if refused else ""
        raise ConfigError(f"sweep.designs: fractional: {error}{why}") from None
    return Design(tuple(contrast_effect(term, "fractional", levels, arms) for term in terms), tuple(refused))


def _generators(toggles: int, resolution: int | None) -> str:
    """The columns of a design; without a resolution those of the smallest one."""
    known = GENERATORS.get(toggles)
    if known is None:
        raise ConfigError(
            f"sweep.designs: fractional takes five to eight toggles, and {toggles} are given under"
            " `levels`; up to four fit into a factorial"
        )
    if resolution is not None and resolution not in known:
        choices = ", ".join(map(str, known))
        raise ConfigError(
            f"sweep.designs: resolution {resolution} with {toggles} toggles is unknown; choose from:"
            f" {choices}"
        )
    return known[resolution or min(known)]


def _legal(
    space: Space, reference: Levels, levels: Mapping[str, tuple[LevelValue, LevelValue]], signs: np.ndarray
) -> tuple[list[Assignment], list[int], list[Refusal]]:
    """Legal arms, their rows in the design, and what was left out."""
    arms, rows, refused = [], [], []
    for number, row in enumerate(signs):
        chosen = {name: pair[int(sign > 0)] for (name, pair), sign in zip(levels.items(), row, strict=True)}
        try:
            arms.append(space.legal({**space.choices(reference), **chosen}))
            rows.append(number)
        except ConfigError as error:
            text = ",".join(f"{name}={value}" for name, value in chosen.items())
            refused.append(Refusal("fractional", "+".join(levels), text, str(error)))
    return arms, rows, refused
