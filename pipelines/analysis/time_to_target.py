"""Time to quality: steps to the target of a training, and these times the time of a step."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from statistics import median

from perfsweep.pipelines.analysis.effect_result import QuantityResult
from perfsweep.pipelines.analysis.quantity import NO_ROUND, Measured, Quantity, Source, Withheld
from perfsweep.pipelines.statistics.estimates import Estimate
from perfsweep.pipelines.statistics.paired_steps import (
    LEAST_SEEDS,
    MOST_MISSED,
    PairedSteps,
    paired_steps,
    steps_to_target,
    time_to_target,
)
from perfsweep.pipelines.statistics.verdicts import ReasonCode
from perfsweep.pipelines.store.needed_once import NO_TRAINING, trained_arms
from perfsweep.pipelines.store.options import Target
from perfsweep.pipelines.store.progress import StoredTrial
from perfsweep.pipelines.store.records import Effect, Outcome, TrialRecord
from perfsweep.pipelines.units import amount, bounds_text, duration

FEW_ROUNDS = "too few rounds tell how far the time of a step scatters"

UNJUDGED = frozenset({ReasonCode.RESULTS_DIFFER, ReasonCode.FEWER_UNITS, ReasonCode.ONLY_A_LOOK})
"""Nothing is called of an arm that computes something else or did less, nor in a mere look."""
UNTIMED = frozenset({ReasonCode.ALL_DISTURBED, ReasonCode.TOO_FEW_ROUNDS})
"""Times say nothing; steps are counted all the same."""


class Trainings:
    """Steps to the target of every arm, by seed; infinite where a training missed it."""

    def __init__(self, measured: Measured) -> None:
        sweep = measured.manifest.sweep
        self.target, self._seeds = Target.of(sweep.measure), sweep.measure.target_seeds
        self._trained = frozenset(trained_arms(measured.manifest))
        self.steps: dict[str, dict[int, float]] = defaultdict(dict)
        self._failed: Counter[str] = Counter()
        for (arm, seed), trial in measured.progress.trainings.items():
            if self.target is None or seed >= self._seeds:
                continue
            record = trial.record
            if record.outcome is not Outcome.OK:
                self._failed[arm] += 1
            elif self.target.decided_by(record.course):
                reached = self.target.steps_in(record.course)
                within = reached is not None and reached <= self.target.last_look
                self.steps[arm][seed] = float(reached) if reached and within else math.inf

    def lacking(self, arm: str) -> str:
        """Why nothing is said of an arm; empty where its trainings are all there."""
        if self.target is None:
            return "no target is named; give measure.target, and measure.target_figure"
        if arm not in self._trained:
            return "an arm that is only part of a contrast is not trained to the target"
        if failed := self._failed[arm]:
            return f"{failed} of {self._seeds} trainings failed; perfsweep logs says why"
        if (there := len(self.steps[arm])) < self._seeds:
            return (
                f"{there} of {self._seeds} trainings to the target are there; the same command does the rest"
            )
        if self.missed(arm) == self._seeds:
            return (
                f"no training reached {self.target} within {self.target.last_look} iterations; use a nearer"
                " measure.target, or more measure.target_steps"
            )
        return ""

    def missed(self, arm: str) -> int:
        """Count the trainings of an arm that missed the target."""
        return sum(map(math.isinf, self.steps[arm].values()))

    def missed_text(self, arm: str) -> str:
        """How many missed it, of how many; empty where all reached it."""
        return f"missed in {missed} of {self._seeds}" if (missed := self.missed(arm)) else ""

    def median(self, arm: str) -> float | Withheld:
        """Median steps of an arm, runs that missed the target being longer than any."""
        if why := self.lacking(arm):
            return Withheld(why)
        middle = median(self.steps[arm].values())
        if math.isinf(middle):
            return Withheld(
                f"{self.missed_text(arm)} runs: half of them or more have no steps to {self.target}"
            )
        return middle

    def paired(self, arm: str, base: str) -> PairedSteps | None:
        """Compare the steps of two arms whose trainings are all there, by seed."""
        assert self.target is not None
        seeds = range(self._seeds)
        ours, theirs = ([self.steps[name][seed] for seed in seeds] for name in (arm, base))
        return paired_steps(ours, theirs, self.target.last_look, self.target.every)

    def refusal(self, arm: str, base: str) -> QuantityResult:
        """The text in place of a ratio where too many runs missed the target."""
        worse = max((arm, base), key=self.missed)
        text = f"{'' if worse == arm else 'base '}{self.missed_text(worse)}"
        if self.missed(worse) > MOST_MISSED * self._seeds:
            why = f"{text} runs: with more than a fifth there is no ratio"
        else:
            why = f"{text} runs: fewer than {LEAST_SEEDS} seeds reached it in both arms"
        return QuantityResult(text=text, withheld=why)


class ToTarget(Source):
    """Ratios of an arm to its base over paired seeds: of steps alone, or of time."""

    def __init__(self, measured: Measured, *, in_time: bool) -> None:
        self._trainings, self._measured, self._in_time = Trainings(measured), measured, in_time
        arms = {arm.id for arm in measured.manifest.arms}
        self.comments = {arm: text for arm in arms if (text := self._trainings.missed_text(arm))}

    def of_arm(self, arm: str) -> float | Withheld:
        """Give the median steps, or these times the arm's time of a step in ns."""
        steps = self._trainings.median(arm)
        if isinstance(steps, Withheld) or not self._in_time:
            return steps
        records = (trial.record for trial in self._timed(arm))
        step_ns = [record.ns_per_unit * _units_of_step(record) for record in records]
        return steps * median(step_ns) if step_ns else NO_ROUND

    def _timed(self, arm: str) -> list[StoredTrial]:
        return [trial for trial in self._measured.trials if trial.record.arm == arm]

    def of_effect(self, effect: Effect) -> QuantityResult:
        """Estimate the ratio of the only pair of an effect."""
        if effect.contrast or len(effect.pairs) != 1 or effect.design in NO_TRAINING:
            return QuantityResult()
        ((arm, base),) = effect.pairs
        if why := self._trainings.lacking(base) or self._trainings.lacking(arm):
            return QuantityResult(text=self._trainings.missed_text(arm), withheld=why)
        steps = self._trainings.paired(arm, base)
        if steps is None:
            return self._trainings.refusal(arm, base)
        estimate = self._in_time_of(effect, steps) if self._in_time else steps_to_target(steps)
        return self._result(arm, estimate) if estimate else QuantityResult(withheld=FEW_ROUNDS)

    def _in_time_of(self, effect: Effect, steps: PairedSteps) -> Estimate | None:
        ours, theirs = (
            [_units_of_step(trial.record) for trial in self._timed(name)] for name in effect.pairs[0]
        )
        if not ours or not theirs:
            return None
        shift = math.log(median(ours) / median(theirs))
        return time_to_target(steps, self._measured.times.estimate(effect), shift)

    def _result(self, arm: str, estimate: Estimate) -> QuantityResult:
        own = self.of_arm(arm)
        assert estimate.interval is not None
        low, high = estimate.interval.ratios
        ratio = math.exp(estimate.log_ratio)
        lines = [amount(ratio), bounds_text(ratio, low, high).replace(" ", "\u00a0")]
        lines += [
            f"p\u00a0{estimate.p:.2g}" if estimate.p is not None else "",
            self._trainings.missed_text(arm),
        ]
        value = None if isinstance(own, Withheld) else own
        return QuantityResult(
            ratio, low, high, estimate.p, value, estimate.rounds, "\n".join(filter(None, lines))
        )


def _units_of_step(record: TrialRecord) -> float:
    return record.units / record.iterations


TARGET = Quantity(
    key="target",
    heading="to target",
    arm_heading="time to target",
    doc="time until a training reaches the target: steps of paired seeds times the time of a step",
    source=lambda measured: ToTarget(measured, in_time=True),
    text=duration,
    held_back_by=UNJUDGED | UNTIMED,
)

TARGET_STEPS = Quantity(
    key="target_steps",
    heading="steps to target",
    arm_heading="steps to target",
    doc="steps until a training reaches the target, over paired seeds",
    source=lambda measured: ToTarget(measured, in_time=False),
    text=lambda steps: f"{steps:,.0f}",
    held_back_by=UNJUDGED,
)
