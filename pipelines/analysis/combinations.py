"""What toggles do in combination: the corners of interactions, and levels alone and with the others."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean

import polars as pl

from perfsweep.pipelines.analysis.effect_result import ALONE, BETWEEN, EffectResult, counts
from perfsweep.pipelines.statistics.verdicts import Verdict
from perfsweep.pipelines.store.records import Arm, Effect, Manifest
from perfsweep.workloads.api import LevelValue

SHARED = " = "
"""Joins interactions that are confounded in a design."""

Cells = Mapping[tuple[LevelValue, LevelValue], Sequence[Arm]]
"""Arms by their levels of two toggles."""


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
        """The time of both together if the two did not interact."""
        return self.first * self.second

    @property
    def name(self) -> str:
        """Both toggles with their high levels."""
        return BETWEEN.join(
            f"{toggle}={level}" for toggle, level in zip(self.toggles, self.high, strict=True)
        )


def interaction_corners(manifest: Manifest, used: pl.DataFrame) -> list[Corners]:
    """Corners of every interaction that a design tells apart from all others and whose rounds are there."""
    separable = [
        effect for effect in manifest.effects if BETWEEN in effect.toggle and SHARED not in effect.toggle
    ]
    corners = [_corners(effect, manifest, used) for effect in separable]
    return [one for one in corners if one is not None]


def _corners(effect: Effect, manifest: Manifest, used: pl.DataFrame) -> Corners | None:
    names = effect.toggle.split(BETWEEN)
    log_times = _log_times(effect, used)
    if len(names) != 2 or not log_times:
        return None
    first, second = names
    arms = [manifest.arm(name) for name in effect.contrast]
    reference = manifest.arm(next(iter(manifest.sweep.references.values())))
    cells = _balanced_cells(arms, first, second)
    if cells is None:
        return None
    times = {levels: mean(log_times[arm.id] for arm in cell) for levels, cell in cells.items()}
    (low, high), (other_low, other_high) = (_ends(arms, name, reference) for name in names)
    against_neither = [
        math.exp(times[levels] - times[low, other_low])
        for levels in ((high, other_low), (low, other_high), (high, other_high))
    ]
    return Corners((first, second), (low, other_low), (high, other_high), *against_neither)


def _ends(arms: Sequence[Arm], toggle: str, reference: Arm) -> tuple[LevelValue, LevelValue]:
    """The two levels of a toggle among the arms of a two-level design, the baseline's first."""
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


def _balanced_cells(arms: Sequence[Arm], first: str, second: str) -> Cells | None:
    """Arms of each combination of two toggles, with the others in balance; None if that leaves one empty."""
    varied = [
        name
        for name in arms[0].levels
        if name not in (first, second) and len({arm.levels[name] for arm in arms}) > 1
    ]
    cells: dict[tuple[LevelValue, LevelValue], list[Arm]] = defaultdict(list)
    for arm in arms:
        cells[arm.levels[first], arm.levels[second]].append(arm)
    kept: Cells = cells
    if not _are_balanced(cells.values(), varied):  # keep the settings of the others that all corners have
        shared = set.intersection(*({_setting(arm, varied) for arm in cell} for cell in cells.values()))
        kept = {
            levels: [arm for arm in cell if _setting(arm, varied) in shared] for levels, cell in cells.items()
        }
    return kept if len(kept) == 4 and all(kept.values()) else None


def _are_balanced(cells: Iterable[Sequence[Arm]], varied: Sequence[str]) -> bool:
    shares = [{(name, arm.levels[name]): 0.0 for name in varied for arm in cell} for cell in cells]
    for share, cell in zip(shares, cells, strict=True):
        for arm in cell:
            for name in varied:
                share[name, arm.levels[name]] += 1 / len(cell)
    return all(share == shares[0] for share in shares)


def _setting(arm: Arm, varied: Sequence[str]) -> tuple[LevelValue, ...]:
    return tuple(arm.levels[name] for name in varied)


@dataclass(frozen=True)
class Together:
    """All winners of a sweep at once, as a sweep of its own (in `folder`) measured them.

    Attributes
    ----------
    whole : all of them against the baseline
    steps : each of them on top of the ones before it
    parts : for each step, it and all before it against the baseline; None where that was not compared
    """

    folder: str
    whole: EffectResult
    steps: tuple[EffectResult, ...]
    parts: tuple[EffectResult | None, ...] = ()


@dataclass(frozen=True)
class Gain:
    """One arm's gain against the baseline that a step begins at, and against the one that it ends at."""

    arm: str
    whole: EffectResult
    method: EffectResult


@dataclass(frozen=True)
class Part:
    """A step from one baseline to another that is a part of every gain on the first; the rest is method.

    Attributes
    ----------
    name : what the sweep calls it, such as ``processor``
    start, end : names of the baselines
    step : the second against the first, which run the same code; None where the sweep does not list it
    gains : of each arm that was measured against both
    """

    name: str
    start: str
    end: str
    step: EffectResult | None
    gains: tuple[Gain, ...]


def parts_of(steps: Mapping[str, tuple[str, str]], effects: Sequence[EffectResult]) -> tuple[Part, ...]:
    """Tell gains apart by the steps that a sweep names."""
    timed = {(r.effect.toggle, r.effect.reference): r for r in effects if r.effect.design == "arms"}
    arms = dict.fromkeys(arm for arm, _ in timed)
    found = []
    for name, (start, end) in steps.items():
        pairs = ((arm, timed.get((arm, start)), timed.get((arm, end))) for arm in arms)
        gains = (Gain(arm, whole, rest) for arm, whole, rest in pairs if whole and rest and whole.ratio)
        counted = tuple(one for one in gains if one.method.ratio and counts(one.whole) and counts(one.method))
        found.append(Part(name, start, end, timed.get((end, start)), counted))
    return tuple(found)


LEAVE_ONE_OUT = "leave_one_out"
_NO_HELP = (Verdict.NO_DIFFERENCE, Verdict.SLOWER)


@dataclass(frozen=True)
class AloneAndBeside:
    """One level measured twice: by itself on the baseline, and by leaving it out of the best arm."""

    alone: EffectResult | None
    beside: EffectResult

    @property
    def reading(self) -> str:
        """What the two verdicts say together; nothing where either is open or its results changed."""
        verdicts = [
            result.verdict if result and not result.outcome else None for result in (self.alone, self.beside)
        ]
        match verdicts:
            case [Verdict.FASTER, Verdict.FASTER]:
                return "helps either way"
            case [before, Verdict.FASTER] if before in _NO_HELP:
                return "helps only with the others"
            case [before, Verdict.FASTER] if before is not Verdict.DIFFERENT:
                return "helps with the others; alone it is not known"
            case [Verdict.FASTER, after] if after in _NO_HELP:
                return "helps only alone: the others already do its work"
            case [before, after] if before in _NO_HELP and after in _NO_HELP:
                return "helps in neither"
        return ""


def alone_and_beside(effects: Sequence[EffectResult]) -> list[AloneAndBeside]:
    """Each level left out of a best arm, with what it does alone; empty unless a sweep has both designs."""
    alone = {(r.effect.toggle, r.effect.level): r for r in effects if r.effect.design == ALONE}
    left_out = [result for result in effects if result.effect.design == LEAVE_ONE_OUT]
    return (
        [AloneAndBeside(alone.get((r.effect.toggle, r.effect.level)), r) for r in left_out] if alone else []
    )
