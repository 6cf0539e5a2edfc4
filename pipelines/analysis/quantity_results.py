"""The quantities that a report may show: what they give to effects and arms, in which columns, or why not."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from perfsweep.pipelines.analysis.arm_results import ARMS, ArmResult
from perfsweep.pipelines.analysis.columns import Column, Where, file_column
from perfsweep.pipelines.analysis.effect_columns import EFFECTS
from perfsweep.pipelines.analysis.effect_result import EffectResult, QuantityResult
from perfsweep.pipelines.analysis.iteration_series import STALL, TAILS
from perfsweep.pipelines.analysis.quantity import (
    COST,
    CPU,
    ENERGY,
    JOB_COST,
    NO_ROUND,
    WALL,
    Measured,
    Quantity,
    Source,
    Withheld,
)
from perfsweep.pipelines.analysis.time_to_target import TARGET, TARGET_STEPS
from perfsweep.pipelines.statistics.verdicts import ReasonCode
from perfsweep.pipelines.units import amount, bounds_text, few


class QuantityResults:
    """The chosen quantities of one sweep; each source is made once."""

    def __init__(self, quantities: Sequence[Quantity], measured: Measured) -> None:
        self._sources: dict[str, Source] = {one.key: one.source(measured) for one in quantities}
        self._quantities, self._measured = quantities, measured
        self._names = measured.manifest.arm_names

    def of_effect(self, result: EffectResult) -> dict[str, QuantityResult]:
        """Compare the arm of an effect with its base in each quantity, as far as its verdict lets."""
        found = {one.key: self._sources[one.key].of_effect(result.effect) for one in self._quantities}
        barred = (one for one in self._quantities if result.code in {ReasonCode.NO_TIME, *one.held_back_by})
        return found | {one.key: _held_back(found[one.key], result) for one in barred}

    def with_values(self, arm: ArmResult) -> ArmResult:
        """Add the values that could be had to an arm, their intervals, and what sources say of some."""
        values = {key: source.of_arm(arm.id) for key, source in self._sources.items()}
        bounds = {key: source.bounds_of(arm.id) for key, source in self._sources.items()}
        return replace(
            arm,
            quantities={key: value for key, value in values.items() if not isinstance(value, Withheld)},
            bounds={key: ends for key, ends in bounds.items() if ends},
            comments={
                key: one.comments[arm.id] for key, one in self._sources.items() if arm.id in one.comments
            },
        )

    def notes(self, effects: Mapping[str, Mapping[str, QuantityResult]], arms: Iterable[str]) -> list[str]:
        """Say of each quantity where it comes from, and why arms or effects lack it, a line for each reason.

        `effects` are results by the name of the effect and the key of the quantity, `arms` the arms that have
        finished rounds.
        """
        finished = list(arms)
        lines = (
            line
            for one in self._quantities
            for line in (*one.remarks(self._measured), *self._lacking(one, effects, finished))
        )
        return list(dict.fromkeys(lines))  # two columns may come from one price

    def _lacking(
        self, one: Quantity, effects: Mapping[str, Mapping[str, QuantityResult]], arms: Sequence[str]
    ) -> list[str]:
        of_arms: dict[str, list[str]] = {}
        for arm in arms:
            if isinstance(value := self._sources[one.key].of_arm(arm), Withheld):
                of_arms.setdefault(value.reason, []).append(self._names[arm])
        of_effects: dict[str, list[str]] = {}
        for name, results in effects.items():
            why = results[one.key].withheld
            if why and why not in of_arms and why != NO_ROUND.reason:  # that the verdict says
                of_effects.setdefault(why, []).append(name)
        return [
            f"{one.heading}{'' if len(names) == among else f' of {few(names)}'}: {reason}"
            for reasons, among in ((of_arms, len(arms)), (of_effects, len(effects)))
            for reason, names in reasons.items()
        ]


def _held_back(found: QuantityResult, result: EffectResult) -> QuantityResult:
    """Put the verdict in the place of a change that would claim what it does not; the arm's value stays."""
    if found.ratio is None:
        return found
    why = ", ".join(filter(None, (result.word, result.held_back or result.note)))
    withheld = f"not compared: {why}"
    return replace(found, ratio=None, low=None, high=None, p=None, text=result.word, withheld=withheld)


QUANTITIES: tuple[Quantity, ...] = (WALL, CPU, ENERGY, COST, JOB_COST, *TAILS, STALL, TARGET, TARGET_STEPS)
"""A new one is added here and to `store.options.COLUMNS`, by which configurations are checked."""


def chosen(keys: Iterable[str]) -> tuple[Quantity, ...]:
    """Look up the quantities that a report shows, in the order in which they were chosen."""
    known = {one.key: one for one in QUANTITIES}
    return tuple(known[key] for key in dict.fromkeys(keys) if key in known)


_NOTHING = QuantityResult()
LAST_DROPPED = 7
"""A narrow terminal leaves out first what the user did not ask for."""


def effect_table(quantities: tuple[Quantity, ...]) -> tuple[Column[EffectResult], ...]:
    """List the columns of the table of effects, those of `quantities` after the usual ones."""
    return (*EFFECTS, *(column for one in quantities for column in _of_effects(one)))


def arm_table(quantities: tuple[Quantity, ...]) -> tuple[Column[ArmResult], ...]:
    """List the columns of the table of arms, those of `quantities` after the usual ones."""
    return (*ARMS, *(column for one in quantities for column in _of_arms(one)))


def _of_effects(one: Quantity) -> Iterator[Column[EffectResult]]:
    def field(name: str) -> Callable[[EffectResult], Any]:
        return lambda row: getattr(row.quantities.get(one.key, _NOTHING), name)

    yield Column(
        one.key,
        one.heading,
        text=lambda row: change_text(row.quantities.get(one.key, _NOTHING)),
        where=Where.PEOPLE,
        doc=one.doc,
        optional=True,
        width=15,
        drop=LAST_DROPPED,
    )
    for name in ("value", "ratio", "low", "high", "p"):
        yield file_column(f"{one.key}_{name}", field(name), float)
    yield file_column(f"{one.key}_rounds", field("rounds"), int)
    yield file_column(f"{one.key}_withheld", field("withheld"))


def change_text(result: QuantityResult) -> str:
    """A change with its interval below it; nothing where it could not be had."""
    if result.text or result.ratio is None:
        return result.text
    bounds = bounds_text(result.ratio, result.low, result.high).replace(" ", "\u00a0")
    return "\n".join(filter(None, [amount(result.ratio), bounds]))


def _of_arms(one: Quantity) -> Iterator[Column[ArmResult]]:
    def value(arm: ArmResult) -> float | None:
        return arm.quantities.get(one.key)

    def text(arm: ArmResult) -> str:
        own, interval = value(arm), one.interval_text(arm.bounds.get(one.key))
        return "\n".join(filter(None, ["" if own is None else one.text(own), interval, comment(arm)]))

    def bound(place: int) -> Callable[[ArmResult], float | None]:
        return lambda arm: arm.bounds[one.key][place] if one.key in arm.bounds else None

    def comment(arm: ArmResult) -> str:
        return arm.comments.get(one.key, "")

    yield Column(one.key, one.arm_heading, value, text, doc=one.doc, kind=float, optional=True)
    for place, end in enumerate(("low", "high")):
        yield file_column(f"{one.key}_{end}", bound(place), float)
    yield file_column(f"{one.key}_comment", comment)
