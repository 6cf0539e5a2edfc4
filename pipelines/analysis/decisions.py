"""From log ratios to verdicts on all effects of a sweep: the one path that judging and simulations share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from perfsweep.pipelines.statistics.estimates import Estimate
from perfsweep.pipelines.statistics.log_ratios import Pair, Rounds
from perfsweep.pipelines.statistics.verdicts import Judgement, decide_verdicts
from perfsweep.pipelines.store.records import PLACEBO, Effect


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
    all_estimates = {effect.id: times.estimate(effect) for effect in effects}
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
