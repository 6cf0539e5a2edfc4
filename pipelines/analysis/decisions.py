"""From log ratios to verdicts on all effects of a sweep, and which of them say nothing."""

from __future__ import annotations

import functools
import math
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace

import polars as pl

from perfsweep.pipelines.analysis.arm_records import ArmRecords
from perfsweep.pipelines.plan.power import USELESS, Power, power, scaled
from perfsweep.pipelines.statistics.estimates import Estimate, reach
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

    def without(self, names: Container[str]) -> Decisions:
        """The same without some effects, which have counted among the comparisons."""
        estimates = {name: one for name, one in self.estimates.items() if name not in names}
        verdicts = {name: one for name, one in self.verdicts.items() if name not in names}
        counted = sum(one.holm is not None for one in self.verdicts.values())
        left = sum(one.holm is not None for one in verdicts.values())
        return replace(self, estimates=estimates, verdicts=verdicts, controls=self.controls - counted + left)

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

    Placebos are a control and not among the comparisons. No effect smaller than their largest distance from
    the baseline is called; each placebo is judged by the distance of the others.

    Parameters
    ----------
    effects : the ones with a time to compare
    withheld : verdicts, by id, of effects whose arms compute something else or did less work, or whose trials
        say nothing
    margin : log ratio within which there is no difference
    """
    controls = {one.id: times.estimate(one, math.inf) for one in effects if one.design == PLACEBO}
    control = {name: estimate for name, estimate in controls.items() if estimate.n}
    floor = reach(control.values())
    others = {one.id: times.estimate(one, floor) for one in effects if one.id not in controls}
    compared = {name: estimate for name, estimate in others.items() if estimate.n}
    withheld = {name: verdict for name, verdict in withheld.items() if name in compared}
    verdicts = decide_verdicts(compared, withheld, margin, floor)
    for name in control:
        bar = reach(estimate for other, estimate in control.items() if other != name)
        verdicts[name] = decide_verdicts(control, margin=margin, floor=bar)[name]
    return Decisions({**compared, **control}, verdicts, floor, len(control))


class HoldingBack:
    """Holds verdicts of one sweep back, by the timing trials that count (`used`)."""

    def __init__(self, manifest: Manifest, used: pl.DataFrame, records: ArmRecords) -> None:
        self._manifest, self._records = manifest, records
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
        if reason := self._unlike_beats(effect):
            return Judgement(Verdict.HELD_BACK, None, reason=reason, code=ReasonCode.UNLIKE_BEATS)
        if scaled(effect, self._power(rounds)) > USELESS:
            reason = "one round has no interval" if rounds == 1 else f"{rounds} rounds decide nothing"
            return Judgement(Verdict.HELD_BACK, None, reason=reason, code=ReasonCode.TOO_FEW_ROUNDS)
        return None

    def _unlike_beats(self, effect: Effect) -> str:
        """Why arms whose slow iterations come without a period are not comparable; "" where they are.

        The regions of one arm may contain more slow iterations than those of another, the same in every
        round. More rounds then only narrow a wrong interval.
        """
        beats = [self._records.beat(arm) for arm in effect.weights]
        if not any(beat.irregular for beat in beats):
            return ""
        least, most = min(beat.each for beat in beats), max(beat.each for beat in beats)
        # What the arms' times would differ by for this reason alone.
        if (
            not most
            or (1 - least / most) * max(beat.share for beat in beats) <= self._manifest.sweep.measure.margin
        ):
            return ""
        return (
            f"regions held unlike numbers of heavy iterations, {least:.2g} and {most:.2g} each, which come at"
            " no regular distance: measure longer regions with measure.iterations"
        )

    @functools.cache  # noqa: B019 - lives as long as the comparison
    def _power(self, rounds: int) -> Power:
        return power(self._manifest, replications=rounds)
