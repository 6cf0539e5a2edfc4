"""Few arms in which every legal pair of levels occurs: what two toggles do together shows in one of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations, product

from perfsweep.pipelines.plan.arms import Space
from perfsweep.workloads.api import Level, Levels, LevelValue
from perfsweep.workloads.errors import ConfigError

Choice = tuple[str, LevelValue]
Pair = frozenset[Choice]


def legal_levels(
    space: Space, fixed: Levels, wanted: Callable[[str, Level], bool]
) -> dict[str, list[LevelValue]]:
    """Every level by toggle that is `wanted` and goes with `fixed`; baselines are left out."""
    found = {
        toggle.name: [
            level.value
            for level in toggle.levels[1:]
            if wanted(toggle.name, level) and _closure(space, {**fixed, toggle.name: level.value}) is not None
        ]
        for toggle in space.toggles.values()
        if toggle.name not in fixed
    }
    return {name: levels for name, levels in found.items() if levels}


def covering(
    space: Space, fixed: Levels, choices: Mapping[str, Sequence[LevelValue]]
) -> list[dict[str, LevelValue]]:
    """Choose complete arms with `fixed` that hold every legal pair of `choices`, few of them, by greed.

    A pair is legal where requirements can be met beside `fixed`. An arm that must leave its pair, because
    requirements move a level, covers what it has in the end.
    """
    left = _legal_pairs(space, fixed, choices)
    arms = []
    while left:
        pair = next(iter(left))
        arm = _widened(space, {**fixed, **dict(pair)}, choices, left)
        arms.append(arm)
        left = {one: None for one in left if not _holds(arm, one) and one != pair}
    return arms


def _legal_pairs(
    space: Space, fixed: Levels, choices: Mapping[str, Sequence[LevelValue]]
) -> dict[Pair, None]:
    found: dict[Pair, None] = {}
    for one, other in combinations(choices, 2):
        for x, y in product(choices[one], choices[other]):
            if _closure(space, {**fixed, one: x, other: y}) is not None:
                found[frozenset({(one, x), (other, y)})] = None
    return found


def _widened(
    space: Space,
    levels: dict[str, LevelValue],
    choices: Mapping[str, Sequence[LevelValue]],
    left: Mapping[Pair, None],
) -> dict[str, LevelValue]:
    """Add to an arm, toggle by toggle, the level that covers most of the pairs that are left."""

    def gain(choice: Choice) -> int:
        return sum(frozenset({choice, (name, value)}) in left for name, value in levels.items())

    for toggle, values in choices.items():
        if toggle in levels:
            continue
        for value in sorted(values, key=lambda value: -gain((toggle, value))):
            if gain((toggle, value)) and _closure(space, {**levels, toggle: value}) is not None:
                levels = {**levels, toggle: value}
                break
    arm = _closure(space, levels)
    assert arm is not None
    return arm


def _holds(arm: Levels, pair: Pair) -> bool:
    return all(arm[name] == value for name, value in pair)


def _closure(space: Space, levels: Levels) -> dict[str, LevelValue] | None:
    try:
        return space.closure(levels)
    except ConfigError:
        return None
