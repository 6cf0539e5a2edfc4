"""Figures of used timing trials as log ratios: what judging and stopping estimate effects from."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from pipelines.statistics.estimates import PooledVariance, hodges_lehmann, pooled_variance
from workloads.errors import RecordError


@dataclass(frozen=True)
class Cell:
    """A positive figure of one arm in one round, such as its time per unit in ns."""

    pack: str
    number: int
    generation: int | None
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


class Rounds:
    """A figure by pack, replication, round and arm.

    A replication is what intervals may count: a round of fresh processes, or all rounds of one process
    generation.

    Raises
    ------
    RecordError
        A figure is not positive.
    """

    def __init__(self, cells: Iterable[Cell], figure: str) -> None:
        self._replications: dict[tuple[str, bool, int], dict[int, dict[str, float]]] = {}
        for cell in cells:
            if not cell.value > 0:
                raise RecordError(
                    f"{figure} of arm {cell.arm} in round {cell.number} of pack {cell.pack} is {cell.value}; "
                    "delete that trial's folder"
                )
            resident = cell.generation is not None
            key = (cell.pack, resident, cell.generation if cell.generation is not None else cell.number)
            self._replications.setdefault(key, {}).setdefault(cell.number, {})[cell.arm] = cell.value

    @property
    def replications(self) -> int:
        """How many the pack with the fewest has."""
        packs = [pack for pack, _, _ in self._replications]
        return min((packs.count(pack) for pack in set(packs)), default=0)

    def log_ratios(self, effect: Contrast) -> np.ndarray:
        """One value per replication with all arms of the effect: Hodges-Lehmann over its rounds.

        Pairs of one process share what that process drew (addresses, placement, autotuning), so they are one
        value.
        """
        weights = effect.weights
        values = []
        for rounds in self._replications.values():
            contrasts = [
                _contrast(weights, times) for times in rounds.values() if all(arm in times for arm in weights)
            ]
            if contrasts:
                values.append(hodges_lehmann(contrasts))
        return np.asarray(values)

    def variance(self, effect: Contrast | None = None) -> PooledVariance | None:
        """Variance of log times, pooled over each pack's arms that are in all of its replications.

        With an effect it is scaled to that effect's error: a mean over many pairs scatters less than one
        pair, whose two arms have a squared weight of one each.
        """
        pooled = self._variance
        if pooled is None or effect is None:
            return pooled
        squares = sum(weight**2 for weight in effect.weights.values())
        return PooledVariance(pooled.mean_square * squares / 2, pooled.degrees)

    def pairs(self, effect: Contrast) -> tuple[Pair, ...]:
        """One value per round with all arms of the effect."""
        weights = effect.weights
        return tuple(
            Pair(pack, owner if shared else None, number, _contrast(weights, times))
            for (pack, shared, owner), rounds in self._replications.items()
            for number, times in rounds.items()
            if weights.keys() <= times.keys()
        )

    def by_server(self) -> list[np.ndarray]:
        """[arms, servers, rounds] log times of each pack whose processes, or their servers, ran more rounds.

        Of the arms that all of its rounds have, and as many rounds of each server as the shortest had.
        """
        packs: dict[str, list[list[dict[str, float]]]] = {}
        for (pack, shared, _), rounds in self._replications.items():
            if shared:
                packs.setdefault(pack, []).append(list(rounds.values()))
        return [_log_table(servers) for servers in packs.values()]

    @functools.cached_property
    def _variance(self) -> PooledVariance | None:
        return pooled_variance(*self._tables())

    def _tables(self) -> Iterator[np.ndarray]:
        """[arms, replications] log times of each pack that can tell a variance: two of each at least."""
        for pack in {pack for pack, _, _ in self._replications}:
            columns = [
                _log_times(rounds) for (owner, _, _), rounds in self._replications.items() if owner == pack
            ]
            # Arms that failed somewhere would need a fit with missing cells; the others tell the variance.
            complete = sorted(set.intersection(*(set(column) for column in columns)))
            table = np.array([[column[arm] for column in columns] for arm in complete])
            if table.ndim == 2 and min(table.shape) > 1:
                yield table


def _contrast(weights: Mapping[str, float], times: Mapping[str, float]) -> float:
    return sum(weight * math.log(times[arm]) for arm, weight in weights.items())


def _log_table(servers: list[list[dict[str, float]]]) -> np.ndarray:
    arms = sorted(set.intersection(*(set(times) for rounds in servers for times in rounds)))
    length = min(map(len, servers))
    table = [[[times[arm] for times in rounds[:length]] for rounds in servers] for arm in arms]
    return np.log(np.reshape(table, (len(arms), len(servers), length)))


def _log_times(rounds: dict[int, dict[str, float]]) -> dict[str, float]:
    """Log time of each arm of a replication, over the rounds that have all of its arms."""
    arms = set.union(*(set(times) for times in rounds.values()))
    whole = [times for times in rounds.values() if arms <= set(times)]
    return {arm: hodges_lehmann([math.log(times[arm]) for times in whole]) for arm in arms} if whole else {}
