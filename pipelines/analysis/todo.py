"""What to do about each effect: turn its level on, leave it off, measure on. Every surface groups by this."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum

from perfsweep.pipelines.analysis.combinations import ALONE, BETWEEN
from perfsweep.pipelines.analysis.effect_result import EffectResult, counts
from perfsweep.pipelines.statistics.verdicts import Verdict
from perfsweep.pipelines.store.records import PLACEBO, Outcome


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
    """The fastest arm of those against the baseline that may be turned on; None where none is faster."""
    against = (r for r in by_speed(effects) if [base for _, base in r.effect.pairs] == [reference])
    return next((r for r in against if todo(r) is ToDo.TURN_ON and r.effect.design != PLACEBO), None)


def winners(effects: Sequence[EffectResult], reference: str) -> list[EffectResult]:
    """Pick what to turn on at once: of each toggle its fastest level, the largest gain first.

    A level that was measured on top of a winner is one too, and comes after it.

    Parameters
    ----------
    reference : id of the arm that levels are measured against, alone
    """
    best: dict[str, EffectResult] = {}
    gain = [r for r in by_speed(effects) if r.effect.design == ALONE and todo(r) is ToDo.TURN_ON]
    bases = [reference]
    while added := [r for r in gain if r.effect.pairs[0][1] in bases and r.effect.toggle not in best]:
        for result in added:
            best.setdefault(result.effect.toggle, result)
        bases = [result.effect.pairs[0][0] for result in best.values()]
    return list(best.values())
