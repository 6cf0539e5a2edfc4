"""Figures of used timing trials as effects: what judging and stopping read their estimates from."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from perfsweep.pipelines.statistics.arm_variance import ArmVariances, Layout, PackTable, pseudo_values
from perfsweep.pipelines.statistics.estimates import Estimate, no_estimate, student_estimate
from perfsweep.workloads.errors import RecordError


@dataclass(frozen=True)
class Cell:
    """A positive figure of one arm in one round, such as its time per unit in ns.

    `server` is the fork server that the round's processes came from; None where each was a draw of its own.
    """

    pack: str
    number: int
    server: int | None
    arm: str
    value: float


@dataclass(frozen=True)
class Pair:
    """What one round says of an effect; `server` is the process or server that several rounds share."""

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
    """A contrast of some arms, by weights that add up to zero."""

    weights: Mapping[str, float]


class Rounds:
    """A figure by pack, round and arm, and the effects that it shows.

    What an interval may count are *replications*: servers, since all rounds of a server share its address
    space and hash seed; rounds, where there is one server or none is recorded.

    Raises
    ------
    RecordError
        A figure is not positive.
    """

    def __init__(self, cells: Iterable[Cell], figure: str) -> None:
        self._packs: dict[str, dict[int, dict[str, Cell]]] = {}
        for cell in cells:
            if not cell.value > 0:
                raise RecordError(
                    f"{figure} of arm {cell.arm} in round {cell.number} of pack {cell.pack} is {cell.value}; "
                    "delete that trial's folder"
                )
            self._packs.setdefault(cell.pack, {}).setdefault(cell.number, {})[cell.arm] = cell

    @functools.cached_property
    def _tables(self) -> list[PackTable]:
        """Packs with a round of two arms; a round that one arm has to itself compares nothing."""
        shared = {
            pack: [cells for _, cells in sorted(rounds.items()) if len(cells) > 1]
            for pack, rounds in self._packs.items()
        }
        return [_table(pack, rounds) for pack, rounds in shared.items() if rounds]

    @functools.cached_property
    def variances(self) -> ArmVariances:
        """Variances of the arms' replication means, over all packs."""
        return ArmVariances(self._tables)

    @property
    def layout(self) -> Layout | None:
        """What servers add to the variance; None where no server has several rounds."""
        return self.variances.layout()

    @property
    def replications(self) -> int:
        """How many the pack with the fewest has."""
        return min((len(np.unique(table.replication)) for table in self._tables), default=0)

    @property
    def rounds(self) -> int:
        """How many the pack with the fewest has."""
        return min((table.values.shape[1] for table in self._tables), default=0)

    def estimate(self, effect: Contrast) -> Estimate:
        """Estimate an effect from the replications that have all of its arms, with its 95 % interval."""
        values, coefficients, rounds = [], {}, 0
        for table in self._tables:
            if effect.weights.keys() <= set(table.arms):
                rows = [table.arms.index(arm) for arm in effect.weights]
                weights = np.array(list(effect.weights.values()))
                contrasts = weights @ table.means()[rows]
                values.append(contrasts[np.isfinite(contrasts)])
                rounds += int(np.isfinite(table.values[rows]).all(axis=0).sum())
                # A mean over all replications: a pack counts by how many of them it has.
                coefficients |= {
                    (table.pack, arm): weight**2 * len(values[-1]) for arm, weight in effect.weights.items()
                }
        n = sum(map(len, values))
        if n < 2 or not self.variances.degrees:
            return no_estimate(np.concatenate([np.zeros(0), *values]))
        variance, degrees = self.variances.of_sum(coefficients)
        mean = float(np.concatenate(values).mean())
        return student_estimate(mean, math.sqrt(variance) / n, degrees, n, rounds)

    def pairs(self, effect: Contrast) -> tuple[Pair, ...]:
        """One log ratio of the figures as they are for each round with all arms of the effect."""
        weights = effect.weights
        return tuple(
            Pair(pack, next(iter(cells.values())).server, number, _contrast(weights, cells))
            for pack, rounds in self._packs.items()
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
