"""Verdicts: the only module that turns intervals of effects into words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from perfsweep.pipelines.statistics.estimates import (
    ALPHA,
    LEVEL,
    Estimate,
    HolmStep,
    Interval,
    holm,
    rounds_to_decide,
)

MARGIN = math.log(1.01)
"""Default margin: a log ratio closer to zero is no relevant difference."""


class Verdict(StrEnum):
    """The verdict on one comparison."""

    FASTER = "faster"
    SLOWER = "slower"
    NO_DIFFERENCE = "no difference"
    UNDECIDED = "undecided"
    DIFFERENT = "different"
    FEWER_UNITS = "fewer units"
    HELD_BACK = "held back"


class ReasonCode(StrEnum):
    """The reason of a verdict, for programs; `perfsweep compare --explain` says it in words."""

    CALLED_FASTER = "called_faster"
    CALLED_SLOWER = "called_slower"
    INSIDE_MARGIN = "inside_margin"
    HOLDS_ZERO = "holds_zero"
    HOLM_NOT_REJECTED = "holm_not_rejected"
    REACHES_INTO_MARGIN = "reaches_into_margin"
    BELOW_PLACEBO_FLOOR = "below_placebo_floor"
    TOO_FEW_ROUNDS = "too_few_rounds"
    ALL_DISTURBED = "all_disturbed"
    ONLY_A_LOOK = "only_a_look"
    UNLIKE_BEATS = "unlike_beats"
    RESULTS_DIFFER = "results_differ"
    FEWER_UNITS = "fewer_units"
    NO_TIME = "no_time"
    NO_RECORDS = "no_records"


_WITHHELD = {
    ReasonCode.ONLY_A_LOOK.value: "only a look",
    ReasonCode.TOO_FEW_ROUNDS.value: "too few rounds",
    ReasonCode.UNLIKE_BEATS.value: "unlike regions",
}


def verdict_word(verdict: str, code: str | None = None) -> str:
    """The words that a reader sees for a verdict, or for an outcome in its place."""
    if verdict == Verdict.HELD_BACK:
        return _WITHHELD.get(code or "", "too noisy")
    return verdict.replace("inert", "no effect")


@dataclass(frozen=True)
class Judgement:
    """A verdict with its interval and its reason.

    Attributes
    ----------
    interval : the interval that the verdict uses: Holm's for faster and slower, else the plain one
    corrected : Holm's interval, which rulings of claims use; None for a comparison that was withheld, or that
        has no interval at Holm's level
    margin : log ratio within which there is no difference
    holm : place in the sweep's step-down; None for a comparison that was withheld
    rounds : rounds that would decide an undecided comparison if the estimate stayed; None if none would
    reason : in words, if the verdict does not come from an interval
    code : the reason of every verdict, for programs
    """

    verdict: Verdict
    interval: Interval | None
    holm: HolmStep | None = None
    rounds: int | None = None
    reason: str = ""
    corrected: Interval | None = None
    margin: float = MARGIN
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
        trial disturbed); their times are not compared, so the correction does not count them
    margin : log ratio within which there is no difference
    floor : largest log ratio that placebos, copies of the baseline, may have shown; no smaller effect is
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
    # Holm stops at the first comparison that it does not reject; all later ones use at least its level.
    stopped = max((step.level for step in steps.values() if not step.rejected), default=LEVEL)
    return {
        name: replace(withheld[name], interval=estimate.interval)
        if name in withheld
        else replace(
            _judge(estimate, steps[name], margin, floor),
            corrected=estimate.at(steps[name].level if steps[name].rejected else stopped),
            margin=margin,
        )
        for name, estimate in estimates.items()
    }


def _judge(estimate: Estimate, step: HolmStep, margin: float, floor: float) -> Judgement:
    called = max(margin, floor)
    # If Holm does not reject a comparison, its plain interval counts, which can only say "no difference".
    corrected = estimate.at(step.level) if step.rejected else None
    if corrected and corrected.high < -called:
        return Judgement(Verdict.FASTER, corrected, step, code=ReasonCode.CALLED_FASTER)
    if corrected and corrected.low > called:
        return Judgement(Verdict.SLOWER, corrected, step, code=ReasonCode.CALLED_SLOWER)
    plain = estimate.interval
    if plain and -margin < plain.low and plain.high < margin:
        return Judgement(Verdict.NO_DIFFERENCE, plain, step, code=ReasonCode.INSIDE_MARGIN)
    rounds, code = rounds_to_decide(estimate, margin), _undecided(estimate, corrected, margin)
    return Judgement(Verdict.UNDECIDED, plain, step, rounds, estimate.reason, code=code)


def _undecided(estimate: Estimate, corrected: Interval | None, margin: float) -> ReasonCode:
    """The reason why a comparison is undecided."""
    if estimate.interval is None:
        return ReasonCode.TOO_FEW_ROUNDS
    if corrected is None:
        untold = estimate.p is None or estimate.p > ALPHA
        return ReasonCode.HOLDS_ZERO if untold else ReasonCode.HOLM_NOT_REJECTED
    beyond = corrected.high < -margin or corrected.low > margin
    return ReasonCode.BELOW_PLACEBO_FLOOR if beyond else ReasonCode.REACHES_INTO_MARGIN
