"""The four corners of each interaction: what two toggles cost apart and together, for the picture beside the
table."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean

import polars as pl

from pipelines.store.records import Arm, Effect, Manifest
from workloads.api import LevelValue

BETWEEN = " x "
"""What stands between the toggles of an interaction in the name of its effect."""
SHARED = " = "
"""What stands between interactions that a design cannot tell apart."""


@dataclass(frozen=True)
class Corners:
    """Times of the four combinations of two toggles, as ratios to the one with both at their low level.

    Geometric means over rounds and over the levels of all other toggles, which weigh the same in each corner.
    """

    toggles: tuple[str, str]
    low: tuple[LevelValue, LevelValue]
    high: tuple[LevelValue, LevelValue]
    first: float
    second: float
    both: float

    @property
    def expected(self) -> float:
        """What both take together if neither touched what the other does."""
        return self.first * self.second


def corners(manifest: Manifest, used: pl.DataFrame) -> list[Corners]:
    """Corners of every interaction that a design tells apart from all others and whose rounds are there."""
    found = []
    for effect in manifest.effects:
        if BETWEEN in effect.toggle and SHARED not in effect.toggle:
            drawn = _corners(effect, manifest, used)
            found += [drawn] if drawn else []
    return found


def _corners(effect: Effect, manifest: Manifest, used: pl.DataFrame) -> Corners | None:
    names = effect.toggle.split(BETWEEN)
    times = _log_times(effect, used)
    if len(names) != 2 or not times:
        return None
    arms = [manifest.arm(name) for name in effect.contrast]
    reference = manifest.arm(next(iter(manifest.sweep.references.values())))
    ends = [_ends(arms, name, reference) for name in names]
    cells = _cells(arms, times, (names[0], names[1]))
    if cells is None:
        return None
    (low, high), (other_low, other_high) = ends
    places = ((high, other_low), (low, other_high), (high, other_high))
    first, second, both = (math.exp(cells[place] - cells[low, other_low]) for place in places)
    return Corners((names[0], names[1]), (low, other_low), (high, other_high), first, second, both)


def _ends(arms: Sequence[Arm], toggle: str, reference: Arm) -> tuple[LevelValue, LevelValue]:
    """The two levels of a toggle among the arms of a two-level design, the reference's first."""
    one, other = dict.fromkeys(arm.levels[toggle] for arm in arms)
    return (other, one) if reference.levels[toggle] == other else (one, other)


def _log_times(effect: Effect, used: pl.DataFrame) -> dict[str, float]:
    """Mean log time of each arm over the rounds that have all arms of the effect, so that drift cancels."""
    rounds: dict[tuple[str, int], dict[str, float]] = defaultdict(dict)
    own = used.filter(pl.col("arm").is_in(list(effect.contrast)) & (pl.col("ns_per_unit") > 0))
    for pack, number, arm, time in own.select("pack", "round", "arm", "ns_per_unit").iter_rows():
        rounds[pack, number][arm] = math.log(time)
    whole = [times for times in rounds.values() if len(times) == len(effect.contrast)]
    return {arm: mean(times[arm] for times in whole) for arm in effect.contrast} if whole else {}


def _cells(
    arms: Sequence[Arm], times: Mapping[str, float], names: tuple[str, str]
) -> dict[tuple[LevelValue, LevelValue], float] | None:
    """Mean log time of each combination of two toggles, with the other toggles equally often at each level in
    all four."""
    varied = [
        name for name in arms[0].levels if len({arm.levels[name] for arm in arms}) > 1 and name not in names
    ]
    found: dict[tuple[LevelValue, LevelValue], list[Arm]] = defaultdict(list)
    for arm in arms:
        found[arm.levels[names[0]], arm.levels[names[1]]].append(arm)
    if not _balanced(
        found.values(), varied
    ):  # combinations are missing: keep those that all four corners have
        settings = [{_setting(arm, varied) for arm in corner} for corner in found.values()]
        shared = set.intersection(*settings)
        found = {
            key: [arm for arm in corner if _setting(arm, varied) in shared] for key, corner in found.items()
        }  # type: ignore
    if len(found) != 4 or not all(found.values()):
        return None
    return {key: mean(times[arm.id] for arm in corner) for key, corner in found.items()}


def _balanced(corners: Iterable[Sequence[Arm]], varied: Sequence[str]) -> bool:
    shares = [{(name, arm.levels[name]): 0.0 for name in varied for arm in corner} for corner in corners]
    for share, corner in zip(shares, corners, strict=True):
        for arm in corner:
            for name in varied:
                share[name, arm.levels[name]] += 1 / len(corner)
    return all(share == shares[0] for share in shares)


def _setting(arm: Arm, varied: Sequence[str]) -> tuple[LevelValue, ...]:
    return tuple(arm.levels[name] for name in varied)
