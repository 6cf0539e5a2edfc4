"""The picture of phases: of each arm a bar of its time per unit, stacked of what the workload marks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

from perfsweep.pipelines.analysis.arm_results import ArmResult
from perfsweep.pipelines.analysis.compare import Comparison
from perfsweep.pipelines.report.pictures.charts import LINES, figure_column, row_figure
from perfsweep.pipelines.report.pictures.svg import GREY, LINE, NARROW
from perfsweep.pipelines.report.tables import effects_by_design
from perfsweep.pipelines.units import duration

MOST = len(LINES)
"""Phases with a colour of their own; the shorter ones share one."""
OTHERS, REST = "other phases", "between phases"
ROOM = 1.05
"""Phases may add up to this part of an arm's time: medians of each are not the median of all."""


@dataclass(frozen=True)
class Bar:
    """One arm: its time per unit in ns, and the part of each phase in the order of the breakdown."""

    arm: str
    ns_per_unit: float
    parts: tuple[float, ...]


@dataclass(frozen=True)
class Breakdown:
    """What the time per unit of all arms is made of; `phases` name the parts, the longest first."""

    unit: str
    phases: tuple[str, ...]
    bars: tuple[Bar, ...]


def breakdown(comparison: Comparison) -> Breakdown | None:
    """Break down every arm that has phases, the baseline first, then as in the tables; None: none has."""
    arms = [arm for arm in _in_order(comparison) if arm.phases and arm.ns_per_unit]
    phases = _side_by_side(arms)
    if not phases:
        return None
    own, others = phases[:MOST], phases[MOST:]
    bars = []
    for arm in arms:
        times = {one.phase: one.ns_per_unit for one in arm.phases}
        parts = [times.get(name, 0.0) for name in own]
        parts += [sum(times.get(name, 0.0) for name in others)] if others else []
        parts += [max(0.0, (arm.ns_per_unit or 0.0) - sum(parts))]
        paired = _paired(arm)
        bars.append(
            Bar(
                arm.name or arm.label,
                paired * (arm.ns_per_unit or 0.0),
                tuple(paired * part for part in parts),
            )
        )
    names = (*own, *([OTHERS] if others else []), REST)
    return Breakdown(comparison.unit, names, tuple(bars))


def _paired(arm: ArmResult) -> float:
    """Of an arm, its time in the rounds that it shares with the baseline, by its median of all rounds."""
    return arm.paired_ns / arm.ns_per_unit if arm.paired_ns and arm.ns_per_unit else 1.0


def _in_order(comparison: Comparison) -> list[ArmResult]:
    arms = {arm.id: arm for arm in comparison.arms}
    name = comparison.reference.name if comparison.reference else ""
    first = [arm.id for arm in comparison.arms if arm.name == name]
    rows = [r for _, results in effects_by_design(comparison.effects) for r in results]
    compared = [arm for r in rows for pair in r.effect.pairs for arm in pair]
    return [arms[one] for one in dict.fromkeys([*first, *compared, *arms]) if one in arms]


def _side_by_side(arms: Sequence[ArmResult]) -> list[str]:
    """Name the phases that lie next to each other, the longest first: one within another is none of them."""
    times = {arm.id: {one.phase: one.ns_per_unit for one in arm.phases} for arm in arms}
    names = dict.fromkeys(name for own in times.values() for name in own)
    longest = sorted(names, key=lambda name: -sum(own.get(name, 0.0) for own in times.values()))
    kept: list[str] = []
    for name in longest:
        sums = {arm.id: sum(times[arm.id].get(one, 0.0) for one in (*kept, name)) for arm in arms}
        if all(sums[arm.id] <= ROOM * (arm.ns_per_unit or 0.0) for arm in arms):
            kept.append(name)
    return kept


def chart(found: Breakdown, width: int) -> Figure:
    """Draw a bar for each arm; the parts have the same order and colours in all of them."""
    size, unit = _scale(max(bar.ns_per_unit for bar in found.bars))
    figure, axes = row_figure([bar.arm for bar in found.bars], width)
    rows, lefts = range(len(found.bars)), [0.0] * len(found.bars)
    for number, (phase, colour) in enumerate(zip(found.phases, _colours(found.phases), strict=True)):
        parts = [bar.parts[number] / size for bar in found.bars]
        if any(parts):
            axes.barh(rows, parts, left=lefts, height=0.62, color=colour, label=phase)
        lefts = [left + part for left, part in zip(lefts, parts, strict=True)]
    figure_column(axes, [duration(bar.ns_per_unit) for bar in found.bars])
    axes.set_xlabel(f"{unit} per {found.unit}")
    figure.legend(loc="outside lower center", ncols=2 if width <= NARROW else 4)
    rows_of_legend = -(-len(found.phases) // (2 if width <= NARROW else 4))
    figure.set_figheight(figure.get_figheight() + rows_of_legend * 20 / 72)
    return figure


def _colours(phases: Sequence[str]) -> list[str]:
    own = iter(LINES)
    return [{OTHERS: GREY, REST: LINE}.get(phase) or next(own) for phase in phases]


def _scale(ns: float) -> tuple[float, str]:
    for size, unit in ((1e9, "seconds"), (1e6, "milliseconds"), (1e3, "microseconds")):
        if ns >= size:
            return size, unit
    return 1.0, "nanoseconds"
