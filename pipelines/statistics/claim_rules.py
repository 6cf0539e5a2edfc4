"""What is said about a report's claims: as strict as verdicts, and read from the same intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from perfsweep.pipelines.statistics.verdicts import Judgement, Verdict, verdict_word
from perfsweep.workloads.api import Claim, Device


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
            Obstacle.NO_TENSOR_CORES: not cuda or device.below(8, 0),
            Obstacle.ONE_DEVICE: device.count < 2,
            Obstacle.NO_COMPILER: not cuda and not device.compiler,
            Obstacle.A_RULE: True,
        }[self]


ANY_GAIN = (1.0, math.inf)
ANY_LOSS = (0.0, 1.0)
NO_EFFECT = (1 / 1.02, 1.02)
SIZE_WORDS: Mapping[str, tuple[float, float]] = {
    **dict.fromkeys(("none", "negligible"), NO_EFFECT),
    **dict.fromkeys(("helps", "faster"), ANY_GAIN),
    **dict.fromkeys(("slight", "small", "minor", "low"), (1.0, 1.1)),
    **dict.fromkeys(("medium", "moderate"), (1.1, 1.3)),
    **dict.fromkeys(("significant", "significantly", "expensive"), (1.2, math.inf)),
    **dict.fromkeys(("high", "large"), (1.3, math.inf)),
    **dict.fromkeys(("much", "major", "critical"), (1.5, math.inf)),
    "slower": ANY_LOSS,
    "slightly slower": (1 / 1.1, 1.0),
    "much slower": (0.0, 1 / 1.5),
}
"""Speed ratios (2.0 is twice as fast) that a report's size words are held to; for memory, the base's peak
over the arm's. The only place where words have sizes."""


@dataclass(frozen=True)
class Ruled:
    """A ruling; `reason` says why there is none, or how far beyond the claim it goes."""

    ruling: Ruling
    reason: str = ""


def rule_claim(claimed: tuple[float, float], judgement: Judgement, log_ratio: float) -> Ruled:
    """Rule on a claimed ratio from a verdict and the interval that is corrected for the whole sweep.

    With r the measured ratio, [a, b] its corrected interval and [low, high] the claim: a > high is exceeded;
    r >= low with a > sqrt(low), more than half of the claimed gain, confirmed; b < low refuted; anything
    else undecided. A bare direction, low of 1, is refuted by the opposite verdict, by *no difference*, and by
    a b within the margin; nothing is confirmed or exceeded without the verdict of its direction. A claimed
    loss (high at most 1) is ruled the same way upside down. A claim of no effect is confirmed by an interval
    within its bounds, and refuted by one outside.

    Parameters
    ----------
    claimed : from `claimed_gain`
    judgement : of time, or of peak memory
    log_ratio : the estimate it is ruled by, of the arm to its base
    """
    if judgement.verdict not in READ:
        word = verdict_word(judgement.verdict, judgement.code)
        return Ruled(Ruling.UNDECIDED, ", ".join(filter(None, (word, judgement.reason))))
    if judgement.corrected is None:
        return Ruled(Ruling.UNDECIDED, judgement.reason or "too few rounds to correct for the sweep")
    ratio, (a, b) = math.exp(-log_ratio), judgement.corrected.speed
    low, high = claimed
    if low < 1 < high:
        return _rule_no_effect(claimed, (a, b), judgement.verdict)
    if high > 1:
        return _rule_gain(claimed, ratio, (a, b), judgement, Verdict.FASTER)
    upside_down = 1 / high, (1 / low if low else math.inf)
    return _rule_gain(upside_down, 1 / ratio, (1 / b, 1 / a), judgement, Verdict.SLOWER)


READ = frozenset({Verdict.FASTER, Verdict.SLOWER, Verdict.NO_DIFFERENCE, Verdict.UNDECIDED})
"""Verdicts that are read from an interval; the others leave nothing of a claim."""


def _rule_gain(
    claimed: tuple[float, float],
    ratio: float,
    measured: tuple[float, float],
    judgement: Judgement,
    direction: Verdict,
) -> Ruled:
    (low, high), (a, b), verdict = claimed, measured, judgement.verdict
    none = verdict not in (direction, Verdict.UNDECIDED) or b < math.exp(judgement.margin)
    if (low == 1 and none) or (low > 1 and b < low):
        return Ruled(Ruling.REFUTED)
    if verdict is not direction or ratio < low:
        return Ruled(Ruling.UNDECIDED)
    if a > high:
        return Ruled(Ruling.EXCEEDED)
    if a <= math.sqrt(low):
        return Ruled(Ruling.UNDECIDED, "not certainly half of the claimed gain")
    return Ruled(Ruling.CONFIRMED, "at least" if ratio > high else "")


def _rule_no_effect(claimed: tuple[float, float], measured: tuple[float, float], verdict: Verdict) -> Ruled:
    (low, high), (a, b) = claimed, measured
    if b < low or a > high:
        return Ruled(Ruling.REFUTED)
    confirmed = low <= a and b <= high and verdict is not Verdict.UNDECIDED
    return Ruled(Ruling.CONFIRMED if confirmed else Ruling.UNDECIDED)


def rule_predicate(claim: Claim, value: float | None, verdict: Verdict | None = None) -> Ruled:
    """Rule on a claim about a counter or number of the arm itself; None where it was not measured.

    Of an arm that computes something different, or less, nothing is confirmed. What a mechanism gains is said
    apart, by the `verdict` on the arm's time.
    """
    if value is None:
        return Ruled(Ruling.UNDECIDED, f"{claim.figure} was not measured")
    low = -math.inf if claim.low is None else claim.low
    high = math.inf if claim.high is None else claim.high
    # Figures may be quotients of counts for an iteration: three of them can come out as 3.0000000000000004.
    if not low <= value <= high and not any(math.isclose(value, bound) for bound in (low, high)):
        return Ruled(Ruling.REFUTED)
    if verdict is Verdict.DIFFERENT or verdict is Verdict.FEWER_UNITS:
        return Ruled(Ruling.UNDECIDED, verdict.value)
    return Ruled(Ruling.CONFIRMED, _ACTS.get(verdict, "") if verdict else "")


_ACTS = {
    Verdict.FASTER: "it acts, and is faster here",
    Verdict.SLOWER: "it acts, and is slower here",
    Verdict.NO_DIFFERENCE: "it acts, and gains nothing here",
    Verdict.UNDECIDED: "it acts, and no gain is certain here",
}
"""What a confirmed mechanism gains, which is another question."""


def claimed_gain(claim: Claim) -> tuple[float, float]:
    """Bounds of the base over the arm that a claim promises, of time or of peak memory: 2.0 is half of it.

    Of a bound that the report does not give, the side of 1 is taken that the other lies on.

    Raises
    ------
    ValueError
        The claim has neither bounds nor a known word.
    """
    if claim.word is not None:
        if claim.word not in SIZE_WORDS:
            raise ValueError(f"a claim uses the word {claim.word!r}; choose from: {', '.join(SIZE_WORDS)}")
        return SIZE_WORDS[claim.word]
    low, high = claim.low, claim.high
    if low is None and high is None:
        raise ValueError(f"a {claim.kind} claim needs a low or a high bound, or a word of known size")
    if claim.kind == "memory":  # claimed as the arm over its base
        low, high = (1 / high if high else None), (1 / low if low else None)
    if low is None:
        low = 1.0 if high is not None and high > 1 else 0.0
    if high is None:
        high = 1.0 if low < 1 else math.inf
    return low, high
