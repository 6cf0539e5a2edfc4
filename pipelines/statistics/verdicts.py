"""What is said about effects and about a report's claims; the only place that turns intervals into words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Literal

from pipelines.statistics.estimates import ALPHA, Estimate, HolmStep, Interval, holm, rounds_to_decide
from workloads.api import Device

MARGIN = math.log(1.01)
"""Log ratios closer to zero than this make no difference worth a word."""


class Verdict(StrEnum):
    """What is said about one comparison."""

    FASTER = "faster"
    SLOWER = "slower"
    NO_DIFFERENCE = "no difference"
    UNDECIDED = "undecided"
    DIFFERENT = "different"
    FEWER_UNITS = "fewer units"
    HELD_BACK = "held back"


class ReasonCode(StrEnum):
    """Why a verdict is what it is, for programs; `perfsweep compare --explain` says it in words."""

    CALLED_FASTER = "called_faster"
    CALLED_SLOWER = "called_slower"
    INSIDE_MARGIN = "inside_margin"
    HOLDS_ZERO = "holds_zero"
    HOLM_NOT_REJECTED = "holm_not_rejected"
    REACHES_INTO_MARGIN = "reaches_into_margin"
    BELOW_PLACEBO_FLOOR = "below_placebo_floor"
    TOO_FEW_ROUNDS = "too_few_rounds"
    ALL_DISTURBED = "all_disturbed"
    RESULTS_DIFFER = "results_differ"
    FEWER_UNITS = "fewer_units"
    NO_TIME = "no_time"
    NO_RECORDS = "no_records"


@dataclass(frozen=True)
class Judgement:
    """A verdict with what it rests on.

    Attributes
    ----------
    interval : the one that was read: Holm's for faster and slower, else the plain one
    holm : place in the sweep's step-down; None for a comparison that was withheld
    rounds : of an undecided comparison, how many would decide it if the estimate stayed; None if none would
    reason : in words, where the verdict is not read from an interval
    code : the same for programs, of every verdict
    """

    verdict: Verdict
    interval: Interval | None
    holm: HolmStep | None = None
    rounds: int | None = None
    reason: str = ""
    code: ReasonCode = ReasonCode.NO_RECORDS


def decide_verdicts(
    estimates: Mapping[str, Estimate],
    withheld: Mapping[str, Judgement] | None = None,
    margin: float = MARGIN,
    floor: float = 0.0,
) -> dict[str, Judgement]:
    """Verdicts of a whole sweep, corrected by Holm over all of its comparisons.

    Parameters
    ----------
    estimates : by comparison; every effect of the sweep at once, since the correction counts them
    withheld : comparisons that have their verdict for other reasons (results differ, fewer units done, every
        trial disturbed); their times are not looked at, so they are not counted either
    margin : log ratio within which there is no difference
    floor : upper bound of |A/A|, the log ratio that two equal arms of the sweep showed; no smaller effect is
        called

    Raises
    ------
    ValueError
        `withheld` names a comparison that has no estimate.
    """
    withheld = withheld or {}
    if unknown := sorted(set(withheld) - set(estimates)):
        raise ValueError(f"verdicts are withheld from comparisons without an estimate: {', '.join(unknown)}")
    open_names = [name for name in estimates if name not in withheld]
    steps = dict(zip(open_names, holm([estimates[name].p for name in open_names]), strict=True))
    return {
        name: replace(withheld[name], interval=estimate.interval)
        if name in withheld
        else _judge(estimate, steps[name], margin, floor)
        for name, estimate in estimates.items()
    }


def _judge(estimate: Estimate, step: HolmStep, margin: float, floor: float) -> Judgement:
    called = max(margin, floor)
    # A comparison that Holm does not reject is read at the plain level, which can only say "no difference".
    corrected = estimate.at(step.level) if step.rejected else None
    if corrected and corrected.high < -called:
        return Judgement(Verdict.FASTER, corrected, step, code=ReasonCode.CALLED_FASTER)
    if corrected and corrected.low > called:
        return Judgement(Verdict.SLOWER, corrected, step, code=ReasonCode.CALLED_SLOWER)
    plain = estimate.interval
    if plain and -margin < plain.low and plain.high < margin:
        return Judgement(Verdict.NO_DIFFERENCE, plain, step, code=ReasonCode.INSIDE_MARGIN)
    rounds, code = rounds_to_decide(estimate, margin), _undecided(estimate, corrected, margin)
    return Judgement(Verdict.UNDECIDED, plain, step, rounds, estimate.reason, code)


def _undecided(estimate: Estimate, corrected: Interval | None, margin: float) -> ReasonCode:
    """Which bar an undecided comparison did not clear."""
    if estimate.interval is None:
        return ReasonCode.TOO_FEW_ROUNDS
    if corrected is None:
        untold = estimate.p is None or estimate.p > ALPHA
        return ReasonCode.HOLDS_ZERO if untold else ReasonCode.HOLM_NOT_REJECTED
    beyond = corrected.high < -margin or corrected.low > margin
    return ReasonCode.BELOW_PLACEBO_FLOOR if beyond else ReasonCode.REACHES_INTO_MARGIN


class Ruling(StrEnum):
    """What is said about a claim."""

    CONFIRMED = "confirmed"
    EXCEEDED = "exceeded"
    REFUTED = "refuted"
    UNDECIDED = "undecided"
    NOT_MEASURABLE = "not measurable here"


class Obstacle(StrEnum):
    """The only reasons for which a claim may be called not measurable here."""

    NO_CUDA = "needs a CUDA device"
    NO_TENSOR_CORES = "needs CUDA capability 8.0"
    ONE_DEVICE = "needs several devices"
    NO_COMPILER = "needs a C++ compiler or a CUDA device"
    # of claims about no arm, on any device
    A_RULE = "says how to measure, or asks for other work: nothing to rule on"

    def stands(self, device: Device) -> bool:
        """Whether the device's facts bear the reason out."""
        cuda = device.type == "cuda"
        return {
            Obstacle.NO_CUDA: not cuda,
            Obstacle.NO_TENSOR_CORES: not cuda or device.capability < (8, 0),
            Obstacle.ONE_DEVICE: device.count < 2,
            Obstacle.NO_COMPILER: not cuda and not device.compiler,
            Obstacle.A_RULE: True,
        }[self]


ANY_GAIN = (1.0, math.inf)
ANY_LOSS = (0.0, 1.0)
SIZE_WORDS: dict[str, tuple[float, float]] = {
    "none": (1 / 1.02, 1.02),
    "negligible": (1 / 1.02, 1.02),
    "helps": ANY_GAIN,
    "faster": ANY_GAIN,
    "slight": (1.0, 1.1),
    "small": (1.0, 1.1),
    "minor": (1.0, 1.1),
    "low": (1.0, 1.1),
    "medium": (1.1, 1.3),
    "moderate": (1.1, 1.3),
    "significant": (1.1, math.inf),
    "expensive": (1.1, math.inf),
    "high": (1.3, math.inf),
    "large": (1.3, math.inf),
    "major": (1.5, math.inf),
    "critical": (1.5, math.inf),
    "slower": ANY_LOSS,
    "slightly slower": (1 / 1.1, 1.0),
    "much slower": (0.0, 1 / 1.3),
}
"""Speed ratios (2.0 is twice as fast) that a report's size words are held to; for memory, ratios of memory
saved."""


def rule_claim(
    kind: Literal["speedup", "memory", "predicate", "qualitative"],
    low: float | None,
    high: float | None,
    word: str | None,
    interval: Interval | None,
    *,
    holds: bool | None = None,
) -> Ruling:
    """Rule on a claim from the plain 95 % interval.

    With [a, b] the measured ratio and [low, high] the claimed one: a > high is exceeded; overlap with a > 1
    confirmed; b < low refuted; anything else undecided. A claimed loss (high at most 1) is ruled the same way
    upside down. A claim of no effect is confirmed by an interval within its bounds and refuted by one
    outside.

    Parameters
    ----------
    kind : of the claim
    low, high : claimed speed ratio, or, for ``memory``, peak memory of the arm / that of its base (0.5 is
        half of it); of a bound that the report does not give, the side of 1 is taken that the other lies on
    word : of a ``qualitative`` claim, one of `SIZE_WORDS`
    interval : log ratio of time, or of peak memory, of the arm to its base; None where nothing was measured
    holds : of a ``predicate``, whether the counters bear it out; None where they were not counted

    Raises
    ------
    ValueError
        The claim has neither bounds nor a known word.
    """
    if kind == "predicate":
        return {True: Ruling.CONFIRMED, False: Ruling.REFUTED, None: Ruling.UNDECIDED}[holds]
    claimed = _word_bounds(word) if kind == "qualitative" else _bounds(kind, low, high)
    if interval is None:
        return Ruling.UNDECIDED
    if kind == "qualitative" and claimed[0] < 1 < claimed[1]:
        return _rule_no_effect(claimed, interval.speed)
    return _rule_effect(claimed, interval.speed)


def _word_bounds(word: str | None) -> tuple[float, float]:
    if word not in SIZE_WORDS:
        raise ValueError(f"a qualitative claim uses the word {word!r}; choose from: {', '.join(SIZE_WORDS)}")
    return SIZE_WORDS[word]


def _bounds(kind: str, low: float | None, high: float | None) -> tuple[float, float]:
    if low is None and high is None:
        raise ValueError(
            f"a {kind} claim needs a low or a high bound; a claim without numbers is qualitative"
        )
    if kind == "memory":
        # Less memory is the gain, so its ratio is turned round: 0.5 of the memory is a saving of 2.
        low, high = (1 / high if high else None), (1 / low if low else None)
    if low is None:
        low = 1.0 if high is not None and high > 1 else 0.0
    if high is None:
        high = 1.0 if low < 1 else math.inf
    return low, high


def _rule_effect(claimed: tuple[float, float], measured: tuple[float, float]) -> Ruling:
    (low, high), (a, b) = claimed, measured
    if high <= 1:  # a claimed loss: upside down, so that a larger one exceeds it
        low, high = 1 / high, (1 / low if low else math.inf)
        a, b = 1 / b, 1 / a
    if a > high:
        return Ruling.EXCEEDED
    if b < low:
        return Ruling.REFUTED
    return Ruling.CONFIRMED if a > 1 else Ruling.UNDECIDED


def _rule_no_effect(claimed: tuple[float, float], measured: tuple[float, float]) -> Ruling:
    (low, high), (a, b) = claimed, measured
    if low <= a and b <= high:
        return Ruling.CONFIRMED
    return Ruling.REFUTED if b < low or a > high else Ruling.UNDECIDED
