"""How small an effect a plan can see, before anything is measured and after."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from statistics import fmean

from perfsweep.pipelines.statistics.estimates import detectable_effect, pair_error
from perfsweep.pipelines.statistics.log_ratios import Cell, Rounds
from perfsweep.pipelines.store.options import MeasureConfig
from perfsweep.pipelines.store.progress import Progress, StoredTrial
from perfsweep.pipelines.store.records import PLACEBO, Effect, Manifest, Outcome, Pack
from perfsweep.pipelines.store.stop_rule import LEAST_TO_STOP
from perfsweep.workloads.errors import ConfigError

PLANNING_PAIR_SD = 0.02
"""Spread of a pair's log ratio assumed before anything was measured; the report states the spread found."""

PLANNING_LAYOUT_SD = 0.01
"""Spread of a pair's log ratio between servers assumed before anything was measured."""

USELESS = math.log(2)
"""A plan that sees nothing smaller than a factor of two decides nothing that a stopwatch would not."""

LEAST_ROUNDS = 3
"""Two rounds leave each arm one degree of freedom: an arm noisier than the others would not be noticed."""


@dataclass(frozen=True)
class Spread:
    """Standard deviation of a pair's log ratio from round to round, and of what stays within a server."""

    pair_sd: float = PLANNING_PAIR_SD
    layout_sd: float = PLANNING_LAYOUT_SD


@dataclass(frozen=True)
class Power:
    """What a sweep calls faster or slower with 80 % power, the first of its comparisons under Holm.

    Attributes
    ----------
    rounds : of a pack
    replications : servers that they are spread over, or as many where each has processes of its own
    comparisons : effects that the correction counts
    spread : that this assumes
    effect : smallest log ratio of a pair of arms that is told from none; infinite where nothing can be
    margin : relative change that the interval of a faster or slower arm lies beyond
    """

    rounds: int
    replications: int
    comparisons: int
    spread: Spread
    effect: float
    margin: float

    def __str__(self) -> str:
        spread, shared = self.spread, self.replications < self.rounds
        rounds = "1 round" if self.rounds == 1 else f"{self.rounds} rounds"
        servers = f" on {self.replications} servers" if shared else ""
        nothing = self.effect >= USELESS
        # An interval that clears zero, but not the margin, leaves an effect undecided.
        effect = (
            "only changes above 2x" if nothing else f"{math.expm1(self.effect + math.log1p(self.margin)):.1%}"
        )
        assumes = "assuming " if spread == Spread() else ""
        among = (
            "one comparison" if self.comparisons == 1 else f"the clearest of {self.comparisons} comparisons"
        )
        between = f", {spread.layout_sd:.1%} between servers" if shared else ""
        beyond = f", margin {self.margin:.1%}" if self.margin else ""
        return (
            f"with {rounds}{servers} you can see {effect} (80 % power, {among}{beyond},"
            f" {assumes}{spread.pair_sd:.1%} spread between pairs{between})"
        )


def power(
    manifest: Manifest,
    spread: Spread | None = None,
    rounds: int | None = None,
    replications: int | None = None,
) -> Power:
    """What the plan of a sweep can see in a pair of arms; a contrast of many arms sees more.

    `rounds` and `replications` are those of the plan unless others are given.
    """
    spread, rounds = spread or Spread(), rounds or manifest.sweep.measure.rounds
    n = replications or _replications(manifest, rounds)
    margin = manifest.sweep.measure.margin
    comparisons = max(1, sum(effect.design != PLACEBO for effect in manifest.effects))
    degrees = sum((len(pack.arms) - 1) * (n - 1) for pack in manifest.packs)
    if degrees < 1:
        return Power(rounds, n, comparisons, spread, math.inf, margin)
    # Where every round has processes of its own, what they draw is part of the spread between pairs.
    layout_sd = spread.layout_sd if n < rounds else 0.0
    error = pair_error(n, rounds / n, spread.pair_sd, layout_sd)
    effect = detectable_effect(error, degrees, comparisons)
    return Power(rounds, n, comparisons, spread, effect, margin)


def _replications(manifest: Manifest, rounds: int) -> int:
    """Servers of so many rounds; of a single server its rounds, for want of better."""
    measure = replace(manifest.sweep.measure, rounds=rounds)
    servers = math.ceil(rounds / measure.rounds_per_server)
    return servers if servers > 1 else rounds


@dataclass(frozen=True)
class Forecast:
    """Seconds of trials that are still to come, and the widest half-width (log ratio) at their end."""

    seconds: float
    half_width: float

    def __str__(self) -> str:
        widest = f"+-{math.expm1(self.half_width):.1%}"
        return f"about {self.seconds:.0f} s to {widest}" if self.seconds >= 1 else f"now {widest}"


_QUANTILE = 2.0  # Student's at 95 %, of the many degrees of freedom that there are by the end


def forecast(manifest: Manifest, progress: Progress) -> Forecast | None:
    """What the rounds that are there say of the rest; None before two have all arms of an effect.

    An effect takes (t sd / width)^2 rounds of its arms where the sweep ends by width, and a trial as long as
    its arm's did. Arms that are clearly apart leave earlier.
    """
    trials = [one.record for pack in manifest.packs for one in _good(progress, pack)]
    table = Rounds(
        (Cell(one.pack, one.round or 0, one.draw, one.arm, one.ns_per_unit) for one in trials), "ns_per_unit"
    )
    half_widths, rounds = dict[str, float](), Counter[str]()
    for effect in manifest.effects:
        estimate = table.estimate(effect)
        if estimate.error is not None:
            half = _QUANTILE * estimate.error * math.sqrt(estimate.rounds)  # of a single round
            half_widths[effect.id] = half
            rounds |= Counter(dict.fromkeys(effect.weights, _rounds_until(manifest.sweep.measure, half)))
    if not rounds:
        return None
    done = Counter((one.pack, one.arm) for one in trials)
    took = {arm: fmean(one.ended - one.started for one in trials if one.arm == arm) for arm in rounds}
    begun = {pack for pack, _ in done}
    left = [  # packs that have not begun are taken to be like the others
        (
            max(0, (rounds[arm] or max(rounds.values())) - done[pack.id, arm]),
            took.get(arm, fmean(took.values())),
        )
        for pack in manifest.packs
        for arm in pack.arms
        if done[pack.id, arm] or pack.id not in begun
    ]
    seconds = sum(number * each_s for number, each_s in left)
    share = _affordable(manifest, progress, seconds)
    widest = 0.0
    for effect in manifest.effects:
        if effect.id in half_widths:
            there = min(max(done[pack.id, arm] for pack in manifest.packs) for arm in effect.weights)
            number = max(rounds[arm] for arm in effect.weights)
            by_then = there + share * max(0, number - there)
            widest = max(widest, half_widths[effect.id] / math.sqrt(by_then))
    return Forecast(share * seconds, widest)


def _affordable(manifest: Manifest, progress: Progress, seconds: float) -> float:
    """Share of so many seconds of trials that `measure.budget_s` allows."""
    measure = manifest.sweep.measure
    budget_s = measure.budget_s if measure.adaptive else None
    if budget_s is None or not seconds:
        return 1.0
    spent = (progress.seconds(pack.id, len(pack.orders)) for pack in manifest.packs)
    return min(1.0, sum(max(0.0, budget_s - one) for one in spent) / seconds)


def _rounds_until(measure: MeasureConfig, half: float) -> int:
    """Rounds that make an interval as narrow as asked for, from its half-width after one; or as planned."""
    if measure.precision is None or not measure.adaptive:
        return measure.rounds
    wanted = math.ceil((half / math.log1p(measure.precision)) ** 2)
    return min(max(wanted, LEAST_TO_STOP), measure.rounds_planned)


def _good(progress: Progress, pack: Pack) -> Iterator[StoredTrial]:
    used = (one for number in range(len(pack.orders)) for one in progress.used(pack, number))
    return (one for one in used if one.record.outcome is Outcome.OK and one.record.units > 0)


def scaled(effect: Effect, pair: Power) -> float:
    """Smallest log ratio of this effect: a pair's arms have a squared weight of one each."""
    return pair.effect * math.sqrt(sum(weight**2 for weight in effect.weights.values()) / 2)


def refuse_undecidable(manifest: Manifest) -> None:
    """Refuse a plan that could decide nothing, and precision as the end of one too short to tell it.

    Raises
    ------
    ConfigError
        It has too few rounds or servers, and is not meant as a mere look (`measure.look`).
    """
    measure = manifest.sweep.measure
    if measure.look:
        return
    planned = power(manifest)
    if not _decides(manifest, planned):
        raise ConfigError(
            f"measure.rounds={measure.rounds}: too few to decide: {planned}. {_remedy(manifest)}, or"
            " measure.look=true to run without verdicts."
        )
    if measure.precision is not None and measure.rounds < LEAST_TO_STOP:
        raise ConfigError(
            f"measure.precision={measure.precision:g} cannot end a sweep of measure.rounds={measure.rounds}:"
            f" so few rounds agree by luck; plan measure.rounds={LEAST_TO_STOP} or more, or"
            " measure.precision=null"
        )


def _decides(manifest: Manifest, planned: Power) -> bool:
    """Whether the plan can tell its noise, and one of its effects is smaller than a factor of two to it."""
    effect = min((scaled(effect, planned) for effect in manifest.effects), default=0.0)
    return planned.rounds >= LEAST_ROUNDS and planned.replications > 1 and effect <= USELESS


def _remedy(manifest: Manifest) -> str:
    """Name the rounds that would do."""
    plans = (power(manifest, rounds=rounds) for rounds in range(1, 100))
    enough = next((plan.rounds for plan in plans if _decides(manifest, plan)), None)
    return f"Use measure.rounds={enough}" if enough else "Plan fewer effects in one sweep"
