"""What a comparison says of each effect: its verdict among all, its results, its costs, the claims about it.

Every surface groups effects by what to do about them: turn a level on, leave it off, measure on.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from perfsweep.pipelines.analysis.arm_records import Counts, Scaling
from perfsweep.pipelines.parity.results import ParityResult, ParityVerdict
from perfsweep.pipelines.statistics.claim_rules import Ruling
from perfsweep.pipelines.statistics.estimates import Estimate, reach
from perfsweep.pipelines.statistics.log_ratios import Pair, Rounds
from perfsweep.pipelines.statistics.verdicts import (
    Judgement,
    ReasonCode,
    Verdict,
    decide_verdicts,
    verdict_word,
)
from perfsweep.pipelines.store.records import PLACEBO, Effect, Outcome
from perfsweep.pipelines.units import amount, bounds_text, speed
from perfsweep.workloads.api import Claim, LevelValue


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


SPEED, MEMORY = "speed", "memory"
"""Figures that are a ratio to the base; all others are an arm's own value."""


@dataclass(frozen=True)
class QuantityResult:
    """A quantity of an arm against that of its base.

    Attributes
    ----------
    ratio, low, high, p : of arm to base with its 95 % interval, and two-sided p; None where there is none
    value : the arm's own
    rounds : that measured it in both arms
    text : what a cell shows in place of the ratio; empty: the ratio
    withheld : why there is no ratio, as one sentence
    """

    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    value: float | None = None
    rounds: int = 0
    text: str = ""
    withheld: str = ""


@dataclass(frozen=True)
class RuledClaim:
    """One claim about an effect or arm, and what its ruling rests on.

    Attributes
    ----------
    reason : why none is ruled, or how far the ruling goes
    figure : `SPEED`, `MEMORY`, or the counter or number of a predicate
    ratio, low, high : of time or peak memory, arm to base, with the interval that was read
    value : of a predicate's figure
    """

    claim: Claim
    subject: str
    design: str
    ruling: Ruling
    reason: str = ""
    figure: str | None = None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    value: float | None = None

    @property
    def text(self) -> str:
        """The ruling with its reason and the figure that it rests on."""
        evidence = evidence_text(self.figure, self.value, self.ratio, self.low, self.high)
        reason = f": {self.reason}" if self.reason else ""
        return f"{self.ruling.value}{reason}{f' ({evidence})' if evidence else ''}"


def evidence_text(
    figure: str | None, value: float | None, ratio: float | None, low: float | None, high: float | None
) -> str:
    """Say what a ruling rests on: ``2.00x faster [1.67 .. 2.50]``, ``1.25x less memory``, ``slabs 19``."""
    if value is not None:
        return f"{figure} {value:.6g}"
    if ratio is None or low is None or high is None:
        return ""
    size = f"{amount(ratio)} memory" if figure == MEMORY else speed(ratio)
    return f"{size} [{bounds_text(ratio, low, high)}]"


BETWEEN = " x "
"""Joins the toggles of an interaction in the name of its effect."""

ALONE = "one_at_a_time"
"""Design whose effects are of one toggle by itself."""

CROSSED = ("factorial", "fractional")
"""Designs whose main effects are means over arms that differ in other toggles too."""

SHOWN_ROUNDS = 100
"""An undecided effect that needs more rounds than this is not worth deciding."""


@dataclass(frozen=True, repr=False)
class EffectResult:
    """One effect and all that judges it. Ratios are time of arm / time of base: 0.8 is 20 % less time."""

    effect: Effect
    arm_label: str
    base_label: str
    verdict: Verdict | None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    rounds: int = 0
    method: str = ""
    code: ReasonCode = ReasonCode.NO_RECORDS
    parity: ParityResult | None = None
    memory_bytes: float | None = None
    compile_s: float | None = None  # with nothing compiled yet
    warm_compile_s: float | None = None  # in a process that finds compiled code on disk
    break_even: float | None = None
    rounds_needed: int | None = None  # of an undecided effect: how many would decide, if the estimate stayed
    outcome: str = ""  # why there is no time: unsupported, inert, failed ...
    note: str = ""
    derivation: Derivation | None = None
    held_back: str = ""  # why nothing is said although there are times
    rulings: tuple[RuledClaim, ...] = ()
    trials: Counts = field(default_factory=dict)  # how its trials ended, its base's apart
    scaling: Scaling | None = None  # where the arm has more ranks than its base
    quantities: Mapping[str, QuantityResult] = field(default_factory=dict)  # other than time, by key
    on_gpu: str = ""  # of an arm measured on a CPU: whether it acts on a GPU too

    def __repr__(self) -> str:
        """In one line: ``gc=frozen: 1.53x faster [1.33 .. 1.75], identical``."""
        return f"{effect_name(self)}: {summary(self)}"

    @property
    def speed(self) -> float | None:
        """Speed of the arm by its base's: 2.0 is twice as fast."""
        return 1 / self.ratio if self.ratio else None

    @property
    def speed_low(self) -> float | None:
        """Lower end of the 95 % interval of `speed`."""
        return 1 / self.high if self.high else None

    @property
    def speed_high(self) -> float | None:
        """Upper end of it."""
        return 1 / self.low if self.low else None

    @property
    def word(self) -> str:
        """The verdict, or why there is none."""
        if self.outcome or self.verdict is None:
            return verdict_word(self.outcome) or "no rounds yet"
        return verdict_word(self.verdict.value, self.code.value)

    @property
    def parity_ok(self) -> bool:
        """Whether results are known to be the same."""
        return self.parity is not None and self.parity.verdict not in (
            ParityVerdict.DIFFERENT,
            ParityVerdict.UNCHECKED,
        )

    @property
    def parity_text(self) -> str:
        """The parity verdict, with the worst deviation where it matters."""
        if self.parity is None or self.outcome == Outcome.UNSUPPORTED:
            return ""
        worst = self.parity.worst
        if self.parity.verdict is ParityVerdict.DIFFERENT and worst is not None:
            return f"different: {worst.check} {worst.value:.2g} > {worst.bound:.2g}"
        return self.parity.verdict.value.replace("within", "in")


def level_name(effect: Effect) -> str:
    """Toggle and level; listed arms have their own name and that of their baseline: ``fast vs late``."""
    joint = " " if effect.design == "arms" else "="
    return f"{effect.toggle}{joint}{effect.level}" if effect.level else effect.toggle


def effect_name(result: EffectResult) -> str:
    """Toggle, level, the toggles that moved along, and a base that is no reference."""
    effect = result.effect
    label = level_name(effect)
    named = f"{label} (with {', '.join(effect.also)})" if effect.also else label
    other = effect.design == "one_at_a_time" and "=" in result.base_label
    return f"{named} (on top of {result.base_label})" if other else named


def counts(result: EffectResult) -> bool:
    """Whether the time of an effect may be read: an arm with other results, or less work, has none."""
    return result.verdict not in (Verdict.DIFFERENT, Verdict.FEWER_UNITS)


def speed_text(result: EffectResult) -> str:
    """The speed with its direction, or why there is none."""
    return result.word if result.ratio is None or not counts(result) else speed(result.ratio)


def size(result: EffectResult) -> str:
    """An effect's speed with its interval: ``1.72x faster [1.63 .. 1.80]``."""
    bounds = bounds_text(result.ratio, result.low, result.high)
    return speed_text(result) + (f" [{bounds}]" if bounds and counts(result) else "")


def summary(result: EffectResult) -> str:
    """The speed with its interval, and the results: ``1.72x faster [1.63 .. 1.80], identical``."""
    text = result.parity_text
    return ", ".join(filter(None, [size(result) if counts(result) or not text else "", text]))


class ToDo(StrEnum):
    """What an effect asks for, in the order in which a reader looks for it."""

    TURN_ON = "turn on"
    UNCHECKED = "results not checked"
    MORE_TOGETHER = "gain more together"
    LESS_TOGETHER = "gain less together"
    LEAVE_OFF = "leave off"
    CHANGES_RESULTS = "changes results"
    LESS_WORK = "does less work"
    NO_DIFFERENCE = "makes no difference"
    UNDECIDED = "not decided"
    TOO_NOISY = "too noisy"
    NOT_HERE = "cannot act here"
    NO_TIME = "no time"


_OF_VERDICT = {
    Verdict.SLOWER: ToDo.LEAVE_OFF,
    Verdict.DIFFERENT: ToDo.CHANGES_RESULTS,
    Verdict.FEWER_UNITS: ToDo.LESS_WORK,
    Verdict.NO_DIFFERENCE: ToDo.NO_DIFFERENCE,
    Verdict.UNDECIDED: ToDo.UNDECIDED,
    Verdict.HELD_BACK: ToDo.TOO_NOISY,
}

IN_ORDER = ("chain", "ladder", PLACEBO)
"""Designs whose rows keep the order of the plan: steps and sizes say more in a row than in groups."""


def todo(result: EffectResult) -> ToDo:
    """Say what to do about an effect."""
    if result.outcome in (Outcome.UNSUPPORTED, Outcome.INERT):
        return ToDo.NOT_HERE
    if result.outcome or result.verdict is None:
        return ToDo.NO_TIME
    if BETWEEN in result.effect.toggle and result.verdict in (Verdict.FASTER, Verdict.SLOWER):
        return ToDo.MORE_TOGETHER if result.verdict is Verdict.FASTER else ToDo.LESS_TOGETHER
    if result.verdict is Verdict.FASTER:
        return ToDo.TURN_ON if result.parity_ok else ToDo.UNCHECKED
    return _OF_VERDICT[result.verdict]


def by_speed(results: Iterable[EffectResult]) -> list[EffectResult]:
    """Sort effects, the fastest first; those without a time come last."""
    return sorted(results, key=lambda r: (r.ratio is None, r.ratio or 0.0))


def by_todo(results: Iterable[EffectResult]) -> list[EffectResult]:
    """Sort effects by what to do about them, the fastest of each group first."""
    order = list(ToDo)
    return sorted(by_speed(results), key=lambda r: order.index(todo(r)))


def adds_nothing(step: EffectResult, margin: float) -> bool:
    """Whether a step is shown to gain nothing: it cannot act there, or no gain above the margin is left."""
    shown = counts(step) and step.low is not None and step.low > 1 / (1 + margin)
    return shown or todo(step) is ToDo.NOT_HERE


def fastest(effects: Sequence[EffectResult], reference: str) -> EffectResult | None:
    """The fastest arm of those against the baseline that may be turned on; None where none is faster.

    The first pair of a factorial's main effect is the level by itself; a contrast is no arm.
    """
    against = (r for r in by_speed(effects) if not r.effect.contrast and r.effect.pairs[0][1] == reference)
    return next((r for r in against if todo(r) is ToDo.TURN_ON and r.effect.design != PLACEBO), None)


def winners(
    effects: Sequence[EffectResult], reference: str, levels: Mapping[str, Mapping[str, LevelValue]]
) -> list[EffectResult]:
    """Pick what to turn on at once: of each toggle its fastest level, the largest gain first.

    A level that was measured on top of a winner is one too, and comes after it.

    Parameters
    ----------
    reference : id of the arm that levels are measured against, alone
    levels : of each arm, by its id
    """
    best: dict[str, EffectResult] = {}
    gain = [r for r in by_speed(effects) if todo(r) is ToDo.TURN_ON]
    bases = [reference]

    def on_a_base(result: EffectResult) -> bool:
        toggle, (_, base) = result.effect.toggle, result.effect.pairs[0]
        if result.effect.design in CROSSED:
            return levels[base][toggle] == levels[reference][toggle]
        return result.effect.design == ALONE and base in bases

    while added := [r for r in gain if r.effect.toggle not in best and on_a_base(r)]:
        for result in added:
            best.setdefault(result.effect.toggle, result)
        bases = [result.effect.pairs[0][0] for result in best.values()]
    return list(best.values())
