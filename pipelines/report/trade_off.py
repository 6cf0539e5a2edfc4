"""Pictures to choose by: the Pareto front of arms that no other beats in everything, and a ladder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from perfsweep.pipelines.analysis.arm_results import ArmResult
from perfsweep.pipelines.analysis.compare import Comparison
from perfsweep.pipelines.analysis.quantity import COST, ENERGY, cost_text
from perfsweep.pipelines.report.svg import BLUE, GREY, INK, NARROW, RED, canvas, fold, log_axis
from perfsweep.pipelines.statistics.verdicts import Verdict
from perfsweep.pipelines.store.schema import PLACEBO, Arm, Effect
from perfsweep.pipelines.units import MB

TOLD = (Verdict.FASTER, Verdict.SLOWER, Verdict.NO_DIFFERENCE, Verdict.UNDECIDED)
"""Verdicts on times that count, whatever they say."""

NAMED = 8
"""Most arms that are named in the picture, as far as there is room; the table of arms has all of them."""
LETTER, LINE, AWAY = 6.5, 14, 8
"""Pixels of a letter and of a line of a name, and from its point to it."""
SPAN = 5.0
"""From this ratio of the largest to the smallest on, an axis is logarithmic."""


@dataclass(frozen=True)
class Choice:
    """One arm as a choice between time and something else.

    Attributes
    ----------
    value : energy per unit in J, or peak memory in bytes
    cost : of a million units; None where it is not known of all arms
    same : whether its results are known to be the same
    timed : whether its time says anything; it does not where it is always *too noisy*
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
    values: dict[str, Callable[[ArmResult], float | None]] = {
        "energy": lambda arm: arm.quantities.get(ENERGY.key),
        "memory": lambda arm: arm.peak_bytes or None,
    }
    for of, value in values.items():
        found = _choices(comparison, value)
        if len(found) > 1:
            return TradeOff(of, judged(found, comparison.margin))
    return None


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
    """Find the arms (ids) whose times were compared, and always too noisy."""
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


def chart(found: TradeOff, width: int) -> Figure:
    """Draw time per unit against energy per unit or peak memory; the line joins what is not dominated."""
    figure, axes = canvas(width, 400)
    size = 1.0 if found.of == "energy" else MB
    x, y = (lambda one: one.ns_per_unit / 1e3), (lambda one: one.value / size)
    sound = [one for one in found.choices if one.same and one.timed]
    best = [one for one in sound if not one.dominated]
    dominated = [one for one in sound if one.dominated]
    different = [one for one in found.choices if not one.same]
    untimed = [one for one in found.choices if one.same and not one.timed]
    axes.plot([x(one) for one in best], [y(one) for one in best], color=BLUE, linewidth=1, linestyle="--")
    looks: tuple[tuple[list[Choice], dict[str, Any]], ...] = (
        (dominated, {"facecolors": "none", "edgecolors": GREY}),
        (untimed, {"facecolors": "none", "edgecolors": BLUE, "marker": "s"}),
        (different, {"c": RED, "marker": "x"}),
        (best, {"c": BLUE}),
    )
    for choices, look in looks:
        axes.scatter([x(one) for one in choices], [y(one) for one in choices], s=50, zorder=3, **look)
    for name, of in (("x", x), ("y", y)):
        values = [of(one) for one in found.choices]
        if max(values) > SPAN * min(values):
            log_axis(axes, name)
    axes.margins(0.12, 0.18)
    points = axes.transData.transform([(x(one), y(one)) for one in found.choices])
    taken: list[Box] = []
    for number, one in enumerate([*best, *untimed][:NAMED]):
        text, place = _text(one, width), (x(one), y(one))
        own = axes.transData.transform(place)
        free = [box for box in _boxes(text, *own, above=number % 2 == 0) if not any(map(box.meets, taken))]
        if free:
            taken.append(min(free, key=lambda box: box.count(points)))
            _name(axes, text, place, above=taken[-1].bottom > own[1])
    axes.set_xlabel("microseconds per unit")
    axes.set_ylabel("J per unit" if found.of == "energy" else "peak memory, MB")
    return figure


def _text(one: Choice, width: int) -> str:
    text = fold(one.name, 16 if width <= NARROW else 28)
    return text if one.cost is None else f"{text}\n{cost_text(one.cost)} per million"


@dataclass(frozen=True)
class Box:
    """What a name takes of the picture, in pixels."""

    left: float
    right: float
    bottom: float
    top: float

    def meets(self, other: Box) -> bool:
        """Whether two names would lie over each other."""
        overlaps = self.left < other.right and other.left < self.right
        return overlaps and self.bottom < other.top and other.bottom < self.top

    def count(self, points: np.ndarray) -> int:
        """Count the points [N, 2] that the name would lie over."""
        x, y = points.T
        return int(np.sum((self.left < x) & (x < self.right) & (self.bottom < y) & (y < self.top)))


def _boxes(text: str, x: float, y: float, above: bool) -> list[Box]:
    """The places of a name over and under its point, first the one that is preferred."""
    lines = text.split("\n")
    left, right = (x + side * LETTER * max(map(len, lines)) / 2 for side in (-1, 1))
    height = LINE * len(lines)
    over = Box(left, right, y + AWAY, y + AWAY + height)
    under = Box(left, right, y - AWAY - height, y - AWAY)
    return [over, under] if above else [under, over]


def _name(axes: Axes, text: str, place: tuple[float, float], above: bool) -> None:
    offset, side = ((0, AWAY), "bottom") if above else ((0, -AWAY), "top")
    axes.annotate(
        text, place, xytext=offset, textcoords="offset points", ha="center", va=side, color=INK, fontsize=10
    )


@dataclass(frozen=True)
class SizeResult:
    """One value of a size toggle: its median time per unit and peak memory, or how its trials ended."""

    value: float
    text: str
    ns_per_unit: float | None
    peak_bytes: int | None
    outcome: str


@dataclass(frozen=True)
class SizeCurve:
    """Times of all sizes of one toggle, smallest first, with everything else at rest."""

    toggle: str
    sizes: tuple[SizeResult, ...]


def size_curves(trials: pl.DataFrame, arms: Sequence[Arm], ladders: dict[str, set[str]]) -> list[SizeCurve]:
    """Sum up each ladder: `ladders` names the toggle and the ids of its arms, base included."""
    return [
        SizeCurve(
            toggle,
            tuple(
                sorted(
                    (_size_result(trials, arm, toggle) for arm in arms if arm.id in ids),
                    key=lambda one: one.value,
                )
            ),
        )
        for toggle, ids in ladders.items()
    ]


def _size_result(trials: pl.DataFrame, arm: Arm, toggle: str) -> SizeResult:
    own = trials.filter(pl.col("arm") == arm.id)
    ok = own.filter(pl.col("used") & (pl.col("outcome") == "ok"))
    level = arm.levels[toggle]
    value = float(level) if isinstance(level, (int, float)) and not isinstance(level, bool) else float("inf")
    if ok.height:
        median, peak = ok["ns_per_unit"].median(), ok["peak_bytes"].median()
        return SizeResult(value, str(level), float(median), int(peak or 0), "ok")  # type: ignore[arg-type]
    bad = own.filter(pl.col("outcome") != "ok")["outcome"].to_list()
    return SizeResult(value, str(level), None, None, bad[-1] if bad else "no rounds")


def size_curve(curve: SizeCurve, width: int) -> Figure:
    """Time per unit against the size, with sizes that did not finish marked along the top."""
    order = {size.text: place for place, size in enumerate(curve.sizes)}
    times = {order[size.text]: size.ns_per_unit / 1e3 for size in curve.sizes if size.ns_per_unit is not None}
    lost = [size for size in curve.sizes if size.ns_per_unit is None]
    top = max(times.values(), default=1.0)
    figure, axes = canvas(width, 340)
    axes.plot(list(times), list(times.values()), marker="o", color=BLUE, linewidth=2)
    if lost:
        axes.scatter([order[size.text] for size in lost], [top] * len(lost), marker="x", c=RED, s=60)
    for size in lost:
        above = {"textcoords": "offset points", "xytext": (0, 8), "ha": "center", "va": "bottom"}
        axes.annotate(size.outcome, (order[size.text], top), color=INK, **above)
    axes.set_xticks(list(order.values()), list(order))
    axes.set_ylim(0, top * 1.15)
    axes.set_xlabel(curve.toggle)
    axes.set_ylabel("microseconds per unit")
    return figure
