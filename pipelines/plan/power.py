"""How small an effect a plan can see, before anything is measured and after."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pipelines.statistics.detectable import detectable_effect
from pipelines.store.records import PLACEBO, Effect, Manifest
from workloads.errors import ConfigError

PLANNING_PAIR_SD = 0.02
"""Spread of a pair's log ratio assumed before anything was measured; the report states the spread found."""

USELESS = math.log(2)
"""A plan that sees nothing smaller than a factor of two decides nothing that a stopwatch would not."""


@dataclass(frozen=True)
class Power:
    """What a sweep can see with 80 % power, the first of its comparisons under Holm.

    Attributes
    ----------
    replications : rounds, or process generations where processes stay
    comparisons : effects that the correction counts
    pair_sd : spread of one pair's log ratio that this assumes
    effect : smallest log ratio of a pair of arms that is seen; infinite where nothing can be
    """

    replications: int
    comparisons: int
    pair_sd: float
    effect: float

    def __str__(self) -> str:
        what = "round" if self.replications == 1 else "rounds"
        seen = f"{math.expm1(self.effect):.1%}" if self.effect < USELESS else "nothing under a factor of two"
        among = (
            "one comparison" if self.comparisons == 1 else f"the clearest of {self.comparisons} comparisons"
        )
        return (
            f"with {self.replications} {what} you can see {seen} (80 % power, {among}, {self.pair_sd:.1%}"
            " spread between pairs)"
        )


def power(manifest: Manifest, pair_sd: float = PLANNING_PAIR_SD, replications: int | None = None) -> Power:
    """What the plan of a sweep can see in a pair of arms; a contrast of many arms sees more."""
    measure = manifest.sweep.measure
    n = measure.rounds // measure.stride if replications is None else replications
    comparisons = sum(effect.design != PLACEBO for effect in manifest.effects)
    degrees = sum((len(pack.arms) - 1) * (n - 1) for pack in manifest.packs)
    return Power(n, comparisons, pair_sd, detectable_effect(n, pair_sd, max(1, comparisons), degrees))


def scaled(effect: Effect, found: Power) -> float:
    """Smallest log ratio of this effect: a pair's arms have a squared weight of one each."""
    return found.effect * math.sqrt(sum(weight**2 for weight in effect.weights.values()) / 2)


def refuse_undecidable(manifest: Manifest) -> None:
    """Refuse a plan that could decide nothing.

    Raises
    ------
    ConfigError
        It has a single round or generation, or sees nothing smaller than a factor of two.
    """
    measure = manifest.sweep.measure
    if measure.rounds % measure.stride:
        raise ConfigError(
            f"measure.rounds={measure.rounds} is no multiple of measure.turns={measure.turns}: a generation"
            " of processes lasts that many rounds"
        )
    found, useless = power(manifest), f"measure.rounds={measure.rounds} decides nothing"
    if found.replications < 2:
        what = "rounds" if measure.stride == 1 else f"generations of {measure.turns} rounds"
        raise ConfigError(f"{useless}: an interval needs at least two {what}")
    if min((scaled(effect, found) for effect in manifest.effects), default=0.0) > USELESS:
        raise ConfigError(f"{useless}: {found}; plan more rounds, or fewer effects in one sweep")
