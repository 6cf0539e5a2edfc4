"""What a search may change, within which limits, and what measured arms say of all others.

They are factors with their legal points. A Gaussian-process surrogate of log times has main effects and
pairwise interactions, shrunk towards none: the best linear unbiased prediction (Henderson 1975) of every arm
from the measured ones. An effect that few and noisy arms suggest counts for less than one that many agree on,
and no arm has to be there for the others to be used.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from perfsweep.pipelines.config.types import SweepCommand, TuneCommand, TuneConfig
from perfsweep.pipelines.plan.arms import Space
from perfsweep.pipelines.plan.designs import Assignment
from perfsweep.pipelines.search import ladders
from perfsweep.workloads.api import Levels, LevelValue, Parity
from perfsweep.workloads.errors import ConfigError

MOST_TOGGLES = 8
ORDER = (Parity.EXACT, Parity.TOLERANCE, Parity.STOCHASTIC)


Point = tuple[int, ...]
"""An arm: for each factor the number of its value."""

MAIN_SD, PAIR_SD, REST_SD = 0.3, 0.08, 0.01
"""Standard deviations, before anything is measured, of a main effect, of an interaction of two, and of all
that is left."""
LENGTH_SCALE = 1.5
"""Doublings over which sizes still tell much about one another: the length scale of a Gaussian kernel."""


@dataclass(frozen=True)
class Factor:
    """A toggle with the values that are tried; the first is the baseline's, unless `start` says other.

    Attributes
    ----------
    sizes : log2 of each value of a ladder, None for a value that is no number; empty where the values have no
        order
    """

    name: str
    values: tuple[LevelValue | None, ...]
    sizes: tuple[float | None, ...] = ()
    start: int = 0

    def correlations(self) -> np.ndarray:
        """[V, V] correlation of what any two values do."""
        numbers = range(len(self.values))
        return np.array([[self.correlation(one, other) for other in numbers] for one in numbers])

    def correlation(self, one: int, other: int) -> float:
        """Correlation of what two values do."""
        if one == other:
            return 1.0
        sizes = [self.sizes[number] if self.sizes else None for number in (one, other)]
        if sizes[0] is None or sizes[1] is None:
            return 0.0
        return float(np.exp(-0.5 * ((sizes[0] - sizes[1]) / LENGTH_SCALE) ** 2))


class Grid:
    """Points of factors as complete assignments, around a reference."""

    def __init__(self, space: Space, reference: Levels, factors: Sequence[Factor]) -> None:
        self.space, self.reference, self.factors = space, dict(reference), tuple(factors)
        self._levels: dict[Point, Assignment | None] = {}

    def levels(self, point: Point) -> Assignment | None:
        """The arm of a point; None where no legal arm is just that.

        What a level requires of toggles outside the search is added; a toggle of the search is never moved on
        the quiet.
        """
        if point not in self._levels:
            self._levels[point] = self._closed(point)
        return self._levels[point]

    def legal(self, point: Point) -> bool:
        """Whether a point is an arm."""
        return self.levels(point) is not None

    def point(self, changes: Mapping[str, int]) -> Point:
        """The baseline with some factors at other values."""
        return tuple(changes.get(factor.name, factor.start) for factor in self.factors)

    def _closed(self, point: Point) -> Assignment | None:
        moved = {f.name: f.values[n] for f, n in zip(self.factors, point, strict=True) if n != f.start}
        try:
            levels = self.space.closure(
                {name: value for name, value in moved.items() if value is not None}, onto=self.reference
            )
        except ConfigError:
            return None
        off = self.space.choices(levels)
        resting = [factor.name for factor in self.factors if factor.name not in moved]
        return levels if all(levels[n] == self.reference[n] or n not in off for n in resting) else None


def search_factors(
    space: Space, reference: Levels, tune: TuneConfig, most: int | None = MOST_TOGGLES
) -> tuple[tuple[Factor, ...], dict[tuple[str, LevelValue], str]]:
    """The factors that the configuration of a search names; `most` of them, None: any number.

    With them come the levels that never enter the search, each with the reason.

    Raises
    ------
    ConfigError
        There is nothing to search, or too much; a toggle has no level, is no ladder, or is named in both
        places.
    """
    names = list(dict.fromkeys([*tune.toggles, *tune.levels]))
    if not names and tune.ladder is None:
        raise ConfigError(f"tune.toggles is empty: name up to {MOST_TOGGLES} of {', '.join(space.toggles)}")
    if tune.ladder in names:
        raise ConfigError(f"{tune.ladder} is in tune.toggles and in tune.ladder; keep it in one of them")
    if most is not None and len(names) > most:
        raise ConfigError(
            f"tune.toggles has {len(names)} toggles, and a search takes {most}; tune the likeliest first"
        )
    left_out: dict[tuple[str, LevelValue], str] = {}
    factors = [_ladder(space, reference, tune)] if tune.ladder else []
    for name in names:
        levels = _levels(space, reference, name, tune)
        kept = [value for value in levels if not _excluded(space, reference, name, value, tune, left_out)]
        if kept:
            factors.append(Factor(name, (None, *kept)))
    if not factors:
        reasons = "; ".join(f"{name}={value}: {why}" for (name, value), why in left_out.items())
        raise ConfigError(f"the limits leave nothing to search: {reasons}")
    return tuple(factors), left_out


def _levels(space: Space, reference: Levels, name: str, tune: TuneConfig) -> list[LevelValue]:
    """Levels of a toggle that the baseline does not have already."""
    toggle = space.toggle(name)
    named = tune.levels.get(name)
    values = [toggle.level(value).value for value in named or [level.value for level in toggle.levels]]
    untried = [value for value in dict.fromkeys(values) if value != reference[name]]
    if not untried:
        raise ConfigError(
            f"{name} has no level to try but {reference[name]}, which the baseline has; choose from:"
            f" {toggle.choices}"
        )
    return untried


def _excluded(
    space: Space,
    reference: Levels,
    name: str,
    value: LevelValue,
    tune: TuneConfig,
    left_out: dict[tuple[str, LevelValue], str],
) -> str:
    """Why a level does not enter the search, or nothing."""
    level = space.toggle(name).level(value)
    loosest = level.parity_with(space.config, {**reference, name: value})
    why = level.unsupported(space.device) or ""
    if ORDER.index(loosest) > ORDER.index(Parity(tune.parity)):
        why = f"its results may move further than tune.parity={tune.parity}; allow it with {loosest}"
    if why:
        left_out[name, value] = why
    return why


def _ladder(space: Space, reference: Levels, tune: TuneConfig) -> Factor:
    """The ladder as a factor; the baseline's level is among its values even where it is no number."""
    name = str(tune.ladder)
    return ladder_factor(name, ladders.sizes_of(space.toggle(name), tune.sizes), reference[name])


def ladder_factor(name: str, sizes: Sequence[int], start: LevelValue) -> Factor:
    """Sizes in order, with the value that a search starts from among them."""
    values: list[Any] = sorted({*sizes, start}) if isinstance(start, int) else [start, *sizes]
    logs = tuple(math.log2(value) if isinstance(value, int) and value > 0 else None for value in values)
    return Factor(name, tuple(values), logs, values.index(start))


def take_memory(command: SweepCommand, name: str, memory_gib: float | None) -> None:
    """Make the memory limit of a search one of its trials.

    Raises
    ------
    ConfigError
        Two limits contradict one another.
    """
    own = command.measure.memory_gib
    if memory_gib is not None and own is not None and own != memory_gib:
        raise ConfigError(
            f"{name}.memory_gib={memory_gib:g} and measure.memory_gib={own:g} contradict one another; give"
            " one of them"
        )
    command.measure = dataclasses.replace(
        command.measure, memory_gib=own if memory_gib is None else memory_gib
    )


def refuse_too_much_memory(name: str, memory_gib: float | None, there: int) -> None:
    """A limit above what the device has would limit nothing.

    Raises
    ------
    ConfigError
        It is.
    """
    if memory_gib is not None and there and memory_gib * 2**30 > there:
        raise ConfigError(
            f"{name}.memory_gib={memory_gib:g} is more than the {there / 2**30:.1f} GiB of the device; leave"
            " it out"
        )


def budget(command: SweepCommand, there: int) -> int | None:
    """Bytes that an arm may need: the limit, else nine tenths of what the device has."""
    if command.measure.memory_gib is not None:
        return int(command.measure.memory_gib * 2**30)
    return int(0.9 * there) or None


def limit_words(command: TuneCommand) -> list[str]:
    """The limits of a search, in words."""
    tune = command.tune
    words = [f"results no looser than {tune.parity}"]
    words += (
        [f"peak memory {command.measure.memory_gib:g} GiB"] if command.measure.memory_gib is not None else []
    )
    words += [f"{tune.compile_s:g} s of compiling"] if tune.compile_s is not None else []
    return [
        *words,
        (
            f"for {tune.iterations:g} iterations, set-up and compiling included"
            if tune.iterations
            else "for a long run"
        ),
    ]


@dataclass(frozen=True)
class Measured:
    """Measured arms [N] with the log times and their variances."""

    points: Sequence[Point]
    values: np.ndarray
    variances: np.ndarray


def predict(
    factors: Sequence[Factor], measured: Measured, candidates: Sequence[Point]
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation [W] of the log times of the arms `candidates`."""
    # The prior has mean zero: without centring, all that is not measured would be drawn to the baseline.
    centre = float(np.mean(measured.values))
    between = _covariance(factors, measured.points, measured.points) + np.diag(measured.variances)
    across = _covariance(factors, candidates, measured.points)
    solved = np.linalg.solve(between, np.column_stack([measured.values - centre, across.T]))
    # Posterior of a Gaussian process: K* K^-1 y, and the prior variance less what the measured arms explain.
    means = centre + across @ solved[:, 0]
    own = 1 + MAIN_SD**2 * len(factors) + PAIR_SD**2 * math.comb(len(factors), 2) + REST_SD**2
    return means, np.sqrt(np.maximum(own - (across * solved[:, 1:].T).sum(axis=1), 0.0))


def _covariance(factors: Sequence[Factor], rows: Sequence[Point], columns: Sequence[Point]) -> np.ndarray:
    """[R, C] covariance of log times: a common level, main effects, pairwise interactions, the arm itself."""
    ours, theirs = np.array(rows), np.array(columns)
    correlations = [
        factor.correlations()[np.ix_(ours[:, i], theirs[:, i])] for i, factor in enumerate(factors)
    ]
    total = np.ones((len(rows), len(columns)))
    for i, one in enumerate(correlations):
        total += MAIN_SD**2 * one
        for other in correlations[:i]:
            total += PAIR_SD**2 * one * other
    return total + REST_SD**2 * (ours[:, None, :] == theirs[None, :, :]).all(axis=2)
