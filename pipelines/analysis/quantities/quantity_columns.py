"""The columns of the tables of effects and arms that show a quantity."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from perfsweep.pipelines.analysis import effect_columns
from perfsweep.pipelines.analysis.arm_columns import ARMS
from perfsweep.pipelines.analysis.arm_results import ArmResult
from perfsweep.pipelines.analysis.columns import Column, Where, file_column
from perfsweep.pipelines.analysis.judging import EffectResult
from perfsweep.pipelines.analysis.quantities.quantity import Quantity, QuantityResult
from perfsweep.pipelines.units import bounds_text, percent

LAST_DROPPED = 7
"""A narrow terminal leaves out what nobody asked for first."""


def effect_table(quantities: tuple[Quantity, ...]) -> tuple[Column[EffectResult], ...]:
    """List the columns of the table of effects, those of `quantities` after the usual ones."""
    return (*effect_columns.EFFECTS, *(column for one in quantities for column in _of_effects(one)))


def arm_table(quantities: tuple[Quantity, ...]) -> tuple[Column[ArmResult], ...]:
    """List the columns of the table of arms, those of `quantities` after the usual ones."""
    return (*ARMS, *(column for one in quantities for column in _of_arms(one)))


def _of_effects(one: Quantity) -> Iterator[Column[EffectResult]]:
    def result(row: EffectResult) -> QuantityResult:
        return row.quantities.get(one.key, QuantityResult())

    def field(name: str) -> Callable[[EffectResult], Any]:
        return lambda row: getattr(result(row), name)

    yield Column(
        one.key,
        one.heading,
        text=lambda row: change_text(result(row)),
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
    return "\n".join(filter(None, [percent(result.ratio), bounds]))


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
