"""The Pareto front: arms that no other beats in time without needing more energy, memory or money."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from perfsweep.pipelines.analysis.arm_results import ArmResult
from perfsweep.pipelines.analysis.compare import Comparison
from perfsweep.pipelines.analysis.quantities.cost import COST, ENERGY
from perfsweep.pipelines.statistics.verdicts import Verdict
from perfsweep.pipelines.store.schema import PLACEBO, Effect

TOLD = (Verdict.FASTER, Verdict.SLOWER, Verdict.NO_DIFFERENCE, Verdict.UNDECIDED)
"""Verdicts on times that count, whatever they say."""


@dataclass(frozen=True)
class Choice:
    """One arm as a choice between time and something else.

    Attributes
    ----------
    value : energy per unit in J, or peak memory in bytes
    cost : of a million units; None where it is not known of all arms
    same : whether its results are known to be the same
    timed : whether its time says anything; it does not where all that is known of it is *held back*
    dominated : whether another arm with the same results is no worse in anything, and better in something
    """

    name: str
    ns_per_unit: float
    value: float
    cost: float | None = None
    same: bool = True
    timed: bool = True
    dominated: bool = False

    @property
    def figures(self) -> tuple[float, ...]:
        """What there is to choose by; less is better in all of it."""
        return (self.ns_per_unit, self.value, *(() if self.cost is None else (self.cost,)))


@dataclass(frozen=True)
class TradeOff:
    """The arms of a sweep, the fastest first.

    Attributes
    ----------
    of : what time is weighed against: energy or memory
    """

    of: str
    choices: tuple[Choice, ...]


def trade_off(comparison: Comparison) -> TradeOff | None:
    """Weigh time against energy, or memory where energy is not known of two arms; None of fewer arms."""
    for of, value in (("energy", _energy), ("memory", _memory)):
        found = _choices(comparison, value)
        if len(found) > 1:
            return TradeOff(of, judged(found, comparison.margin))
    return None


def _energy(arm: ArmResult) -> float | None:
    return arm.quantities.get(ENERGY.key)


def _memory(arm: ArmResult) -> float | None:
    return arm.peak_bytes or None


def _choices(comparison: Comparison, value: Callable[[ArmResult], float | None]) -> list[Choice]:
    copies = {r.effect.pairs[0][0] for r in comparison.effects if r.effect.design == PLACEBO}
    doubtful = [r for r in comparison.effects if not r.parity_ok or r.verdict is Verdict.FEWER_UNITS]
    others = {arm for r in doubtful for arm in _arms_of(r.effect)}
    untimed = _untimed(comparison)
    arms = [arm for arm in comparison.arms if arm.paired_ns and value(arm) and arm.id not in copies]
    priced = all(COST.key in arm.quantities for arm in arms)
    return [
        Choice(
            arm.name or arm.label,
            arm.paired_ns or 0.0,
            value(arm) or 0.0,
            arm.quantities[COST.key] if priced else None,
            arm.id not in others,
            arm.id not in untimed,
        )
        for arm in arms
    ]


def _untimed(comparison: Comparison) -> set[str]:
    """Find the arms (ids) whose times were compared, and always held back."""
    held = [r for r in comparison.effects if r.verdict is Verdict.HELD_BACK]
    heard = [r for r in comparison.effects if r.verdict in TOLD]
    return {arm for r in held for arm in r.effect.weights} - {arm for r in heard for arm in r.effect.weights}


def _arms_of(effect: Effect) -> list[str]:
    """Arms whose results an effect is about: those with the level; none of an interaction."""
    if not effect.contrast:
        return [effect.pairs[0][0]]
    with_level = [arm for arm, weight in effect.contrast.items() if weight > 0]
    # The positive weights of a main effect add up to one, those of an interaction to two.
    return with_level if sum(effect.contrast[arm] for arm in with_level) < 1.5 else []


def judged(choices: Sequence[Choice], margin: float) -> tuple[Choice, ...]:
    """Mark the arms that another one dominates, and put the fastest first.

    What is better by less than `margin` is no reason to leave an arm out, and neither is a time that says
    nothing.
    """
    sound = [one for one in choices if one.same and one.timed]
    marked = [
        replace(one, dominated=one.timed and any(_dominates(by, one, margin) for by in sound))
        for one in choices
    ]
    return tuple(sorted(marked, key=lambda one: one.ns_per_unit))


def _dominates(one: Choice, other: Choice, margin: float) -> bool:
    pairs = list(zip(one.figures, other.figures, strict=True))
    return all(a <= b for a, b in pairs) and any(a * (1 + margin) < b for a, b in pairs)
