"""Paired log ratios: effects with intervals from the figures of used timing trials."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Protocol

import numpy as np

from perfsweep.pipelines.statistics.arm_variance import ArmVariances, Layout, PackTable, pseudo_values
from perfsweep.pipelines.statistics.estimates import (
    Apart,
    Estimate,
    no_estimate,
    sequence_estimate,
    student_estimate,
)
from perfsweep.workloads.errors import RecordError

ROUNDS_TO_TELL, FOUND = 6, 0.2
"""Rounds that an F test for differences between servers needs, and the p below which it has found some."""


@dataclass(frozen=True)
class Cell:
    """A positive figure of one arm in one round, such as its time per unit in ns.

    `server` is the fork server of the round's processes; None if each process was started by itself. `plain`
    is the figure before run delay was subtracted; None if it could not be, as for an arm with own threads.
    """

    pack: str
    number: int
    server: int | None
    arm: str
    value: float
    plain: float | None = None


@dataclass(frozen=True)
class Pair:
    """The log ratio of an effect in one round; several rounds may share a fork server."""

    pack: str
    server: int | None
    number: int
    log_ratio: float


class Contrast(Protocol):
    """Anything that is a weighted sum of log figures of arms."""

    @property
    def weights(self) -> Mapping[str, float]:
        """Weight of each arm's log figure; they add up to zero."""
        ...


@dataclass(frozen=True)
class Weighted:
    """A contrast with given weights, which add up to zero."""

    weights: Mapping[str, float]


class Rounds:
    """A figure by pack, round and arm, and the effects that it shows.

    An effect is estimated from figures of one kind: if run delay could not be subtracted for one of its arms,
    the plain figures of all its arms are used.

    With `apart`, an effect that is clearly apart is estimated by its confidence sequence, from the rounds up
    to the one in which its arm left. Later rounds could change whether servers differ.

    Intervals count *replications*: rounds, or servers. Rounds of a server share its address space and hash
    seed, so servers count if an F test finds that they differ (p < 0.2, since two servers show little), or if
    there are too few rounds for that test. Otherwise rounds count.

    Raises
    ------
    RecordError
        A figure is not positive.
    """

    def __init__(self, cells: Iterable[Cell], figure: str, apart: Apart | None = None) -> None:
        self._apart, self._figure = apart, figure
        self._earlier: dict[tuple[tuple[str, int], ...], Rounds] = {}
        self._packs: dict[str, dict[int, dict[str, Cell]]] = {}
        for cell in cells:
            if not cell.value > 0:
                raise RecordError(
                    f"{figure} of arm {cell.arm} in round {cell.number} of pack {cell.pack} is {cell.value}; "
                    "delete that trial's folder"
                )
            self._packs.setdefault(cell.pack, {}).setdefault(cell.number, {})[cell.arm] = cell

    @functools.cached_property
    def _mixed(self) -> tuple[frozenset[str], Rounds] | None:
        """Arms whose run delay could not be subtracted, and all plain figures; None if all arms are alike."""
        cells = [
            cell for rounds in self._packs.values() for arms in rounds.values() for cell in arms.values()
        ]
        whole = frozenset(cell.arm for cell in cells if cell.plain is None)
        if not whole or all(cell.plain is None for cell in cells):
            return None
        plain = (replace(cell, value=cell.plain or cell.value, plain=None) for cell in cells)
        return whole, Rounds(plain, self._figure, self._apart)

    def _of_one_kind(self, effect: Contrast) -> Rounds:
        return self._mixed[1] if self._mixed and self._mixed[0] & effect.weights.keys() else self

    @functools.cached_property
    def _by_server(self) -> list[PackTable]:
        """Packs that have rounds of two or more arms, with servers as replications."""
        return [
            _table(pack, [rounds[number] for number in shared])
            for pack, rounds in self._packs.items()
            if (shared := self._shared(pack))
        ]

    @functools.cached_property
    def _tables(self) -> list[PackTable]:
        """The same packs with the replications that count: servers or rounds."""
        tables = self._by_server
        few = any(table.values.shape[1] < ROUNDS_TO_TELL for table in tables)
        if few or self.layout is None or self.layout.p < FOUND:
            return tables
        return [replace(table, replication=np.arange(table.values.shape[1])) for table in tables]

    @functools.cached_property
    def _replication(self) -> dict[tuple[str, int], tuple[str, int]]:
        """The replication of each round with two arms or more."""
        tables = {table.pack: table.replication for table in self._tables}
        return {
            (pack, number): (pack, int(place))
            for pack, replication in tables.items()
            for number, place in zip(self._shared(pack), replication, strict=True)
        }

    def _shared(self, pack: str) -> list[int]:
        """The rounds of a pack with two arms or more; other rounds compare nothing."""
        return [number for number, cells in sorted(self._packs[pack].items()) if len(cells) > 1]

    @functools.cached_property
    def variances(self) -> ArmVariances:
        """Variances of the arms' replication means, over all packs."""
        return ArmVariances(self._tables)

    @functools.cached_property
    def layout(self) -> Layout | None:
        """What servers add to the variance; None where no server has several rounds."""
        return ArmVariances(self._by_server).layout()

    @property
    def replications(self) -> int:
        """The smallest number of replications of a pack."""
        return min((len(np.unique(table.replication)) for table in self._tables), default=0)

    @property
    def rounds(self) -> int:
        """The smallest number of rounds of a pack."""
        return min((table.values.shape[1] for table in self._tables), default=0)

    def estimate(self, effect: Contrast, beyond: float = 0.0) -> Estimate:
        """Estimate an effect from the replications that have all of its arms, with its 95 % interval.

        Only an effect `beyond` this log ratio is clearly apart: infinity is for controls, which never leave.
        """
        return self._of_one_kind(effect)._estimate(effect, beyond)

    def _estimate(self, effect: Contrast, beyond: float) -> Estimate:
        values, coefficients, rounds = [], {}, 0
        for table in self._tables:
            if effect.weights.keys() <= set(table.arms):
                rows = [table.arms.index(arm) for arm in effect.weights]
                weights = np.array(list(effect.weights.values()))
                contrasts = weights @ table.means()[rows]
                values.append(contrasts[np.isfinite(contrasts)])
                rounds += int(np.isfinite(table.values[rows]).all(axis=0).sum())
                # A mean over all replications: the weight of a pack is the number of its replications.
                coefficients |= {
                    (table.pack, arm): weight**2 * len(values[-1]) for arm, weight in effect.weights.items()
                }
        n = sum(map(len, values))
        sequence = self._as_left(effect)._sequence(effect) if self._apart else None
        if self._apart and sequence and self._apart.holds(sequence, beyond):
            return sequence
        if n < 2 or not self.variances.degrees:
            return no_estimate(np.concatenate([np.zeros(0), *values]))
        variance, degrees = self.variances.of_sum(coefficients)
        mean = float(np.concatenate(values).mean())
        return student_estimate(mean, math.sqrt(variance) / n, degrees, n, rounds)

    def _as_left(self, effect: Contrast) -> Rounds:
        """The rounds up to the last one that has all arms of an effect."""
        last = tuple(
            (pack, max((number for number, cells in rounds.items() if effect.weights.keys() <= cells.keys())))
            for pack, rounds in self._packs.items()
            if any(effect.weights.keys() <= cells.keys() for cells in rounds.values())
        )
        if dict(last) == {pack: max(rounds) for pack, rounds in self._packs.items()}:
            return self
        if last not in self._earlier:
            cells = (
                cell
                for pack, end in last
                for number, arms in self._packs[pack].items()
                for cell in arms.values()
                if number <= end
            )
            self._earlier[last] = Rounds(cells, self._figure, self._apart)
        return self._earlier[last]

    def _sequence(self, effect: Contrast) -> Estimate | None:
        """Estimate from plain log ratios, averaged over rounds of replications; None from one replication.

        The robust fit would drop some of a noisy arm's first values, and find a small variance in the rest.
        """
        groups: dict[object, list[float]] = {}
        pairs = self.pairs(effect)
        for one in pairs:
            groups.setdefault(self._replication[one.pack, one.number], []).append(one.log_ratio)
        if len(groups) < 2:
            return None
        return sequence_estimate(np.array([fmean(group) for group in groups.values()]), len(pairs))

    def pairs(self, effect: Contrast) -> tuple[Pair, ...]:
        """One plain log ratio for each round that has all arms of the effect."""
        weights, packs = effect.weights, self._of_one_kind(effect)._packs
        return tuple(
            Pair(pack, next(iter(cells.values())).server, number, _contrast(weights, cells))
            for pack, rounds in packs.items()
            for number, cells in sorted(rounds.items())
            if weights.keys() <= cells.keys()
        )


def _contrast(weights: Mapping[str, float], cells: Mapping[str, Cell]) -> float:
    return sum(weight * math.log(cells[arm].value) for arm, weight in weights.items())


def _table(pack: str, rounds: list[dict[str, Cell]]) -> PackTable:
    arms = tuple(dict.fromkeys(arm for cells in rounds for arm in cells))
    log_values = np.array(
        [[math.log(cells[arm].value) if arm in cells else math.nan for cells in rounds] for arm in arms]
    )
    servers = [next(iter(cells.values())).server for cells in rounds]
    draws: list[object] = [f"round {i}" if one is None else one for i, one in enumerate(servers)]
    if len(set(draws)) < 2:
        draws = list(range(len(rounds)))
    places = {draw: place for place, draw in enumerate(dict.fromkeys(draws))}
    return PackTable(pack, arms, pseudo_values(log_values), np.array([places[draw] for draw in draws]))
