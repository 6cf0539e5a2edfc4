"""From log ratios to verdicts on all effects of a sweep, and which of them say nothing."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from perfsweep.pipelines.plan.power import USELESS, Power, power, scaled
from perfsweep.pipelines.statistics.estimates import Estimate
from perfsweep.pipelines.statistics.log_ratios import Pair, Rounds
from perfsweep.pipelines.statistics.verdicts import Judgement, ReasonCode, Verdict, decide_verdicts
from perfsweep.pipelines.store.records import PLACEBO, Effect, Manifest


@dataclass(frozen=True)
class Derivation:
    """What a verdict rests on: its pairs, what they amount to, and the bars that this was held to."""

    pairs: tuple[Pair, ...]
    estimate: Estimate
    judgement: Judgement
    comparisons: int
    floor: float


@dataclass(frozen=True)
class Decisions:
    """Estimates and verdicts by effect id; `floor` is how far placebos may lie off, 0 without any.

    `controls` of the verdicts are on placebos, which are not among the comparisons.
    """

    estimates: dict[str, Estimate]
    verdicts: dict[str, Judgement]
    floor: float = 0.0
    controls: int = 0

    def derivation(self, effect: Effect, times: Rounds) -> Derivation | None:
        """Gather what the verdict on an effect rests on; None without a time."""
        if effect.id not in self.verdicts:
            return None
        comparisons = 1 if effect.design == PLACEBO else self._comparisons
        estimate, judgement = self.estimates[effect.id], self.verdicts[effect.id]
        return Derivation(times.pairs(effect), estimate, judgement, comparisons, self.floor)

    @property
    def _comparisons(self) -> int:
        return sum(one.holm is not None for one in self.verdicts.values()) - self.controls


def decide(
    times: Rounds, effects: Sequence[Effect], withheld: Mapping[str, Judgement], margin: float
) -> Decisions:
    """Judge effects against one another, corrected for their number (Holm 1979).

    Placebos are a control and not among the comparisons: how far they lie from the reference is the least
    that is called, of each placebo too by the others.

    Parameters
    ----------
    effects : those that have a time to compare
    withheld : verdicts, by id, of effects whose arms compute something else or did less work, or whose trials
        say nothing
    margin : log ratio within which there is no difference
    """
    all_estimates = {effect.id: times.estimate(effect, effect.design == PLACEBO) for effect in effects}
    estimates = {name: estimate for name, estimate in all_estimates.items() if estimate.n}
    controls = {effect.id for effect in effects if effect.design == PLACEBO}
    control = {name: estimate for name, estimate in estimates.items() if name in controls}
    compared = {name: estimate for name, estimate in estimates.items() if name not in control}
    floor = _floor(control)
    withheld = {name: verdict for name, verdict in withheld.items() if name in compared}
    verdicts = decide_verdicts(compared, withheld, margin, floor)
    verdicts |= {
        name: decide_verdicts(control, margin=margin, floor=_floor(control, name))[name] for name in control
    }
    return Decisions(estimates, verdicts, floor, len(control))


def _floor(control: Mapping[str, Estimate], but: str = "") -> float:
    """How far from equal the intervals of placebos reach, leaving one of them out."""
    intervals = [estimate.interval for name, estimate in control.items() if name != but]
    return max((max(abs(one.low), abs(one.high)) for one in intervals if one), default=0.0)


class HoldingBack:
    """Holds verdicts of one sweep back, by the timing trials that count (`used`)."""

    def __init__(self, manifest: Manifest, used: pl.DataFrame) -> None:
        self._manifest = manifest
        sound = used.filter(pl.col("disturbed") == "")
        self._disturbed = set(used["arm"].to_list()) - set(sound["arm"].to_list())

    def of(self, effect: Effect, rounds: int) -> Judgement | None:
        """Judge an effect whose times say nothing, of so many rounds or generations; None of any other."""
        if self._manifest.sweep.measure.look:
            reason = "only a look (measure.look)"
            return Judgement(Verdict.HELD_BACK, None, reason=reason, code=ReasonCode.ONLY_A_LOOK)
        if effect.weights.keys() <= self._disturbed:
            reason = "every trial of its arms was disturbed"
            return Judgement(Verdict.HELD_BACK, None, reason=reason, code=ReasonCode.ALL_DISTURBED)
        if scaled(effect, self._power(rounds)) > USELESS:
            reason = "one round has no interval" if rounds == 1 else f"{rounds} rounds decide nothing"
            return Judgement(Verdict.HELD_BACK, None, reason=reason, code=ReasonCode.TOO_FEW_ROUNDS)
        return None

    @functools.cache  # noqa: B019 - lives as long as the comparison
    def _power(self, rounds: int) -> Power:
        return power(self._manifest, replications=rounds)
