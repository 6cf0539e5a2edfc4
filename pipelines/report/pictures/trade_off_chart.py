"""The picture of a trade-off: time against energy or memory, with its Pareto front."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from perfsweep.pipelines.analysis.quantities.cost import cost_text
from perfsweep.pipelines.report.pictures.charts import fold
from perfsweep.pipelines.report.pictures.svg import BLUE, GREY, INK, NARROW, RED, canvas
from perfsweep.pipelines.report.pictures.trade_off import Choice, TradeOff
from perfsweep.pipelines.units import MB

NAMED = 8
"""Most arms that are named in the picture, as far as there is room; the table of arms has all of them."""
LETTER, LINE, AWAY = 6.5, 14, 8
"""Pixels of a letter and of a line of a name, and from its point to it."""
SPAN = 5.0
"""From this ratio of the largest to the smallest on, an axis is logarithmic."""


def chart(found: TradeOff, width: int) -> Figure:
    """Draw time per unit against energy per unit or peak memory; the line joins what is not dominated."""
    figure, axes = canvas(width, 400)
    size = 1.0 if found.of == "energy" else MB
    x, y = (lambda one: one.ns_per_unit / 1e3), (lambda one: one.value / size)
    sound = [one for one in found.choices if one.same and one.timed]
    best = [one for one in sound if not one.dominated]
    beside = [one for one in sound if one.dominated]
    different = [one for one in found.choices if not one.same]
    untimed = [one for one in found.choices if one.same and not one.timed]
    axes.plot([x(one) for one in best], [y(one) for one in best], color=BLUE, linewidth=1, linestyle="--")
    looks: tuple[tuple[list[Choice], dict[str, Any]], ...] = (
        (beside, {"facecolors": "none", "edgecolors": GREY}),
        (untimed, {"facecolors": "none", "edgecolors": BLUE, "marker": "s"}),
        (different, {"c": RED, "marker": "x"}),
        (best, {"c": BLUE}),
    )
    for choices, look in looks:
        axes.scatter([x(one) for one in choices], [y(one) for one in choices], s=50, zorder=3, **look)
    _scale(axes, "x", [x(one) for one in found.choices])
    _scale(axes, "y", [y(one) for one in found.choices])
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
        beside = self.left < other.right and other.left < self.right
        return beside and self.bottom < other.top and other.bottom < self.top

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


def _scale(axes: Axes, name: str, values: Sequence[float]) -> None:
    if max(values) <= SPAN * min(values):
        return
    (axes.set_xscale if name == "x" else axes.set_yscale)("log")
    axis = axes.xaxis if name == "x" else axes.yaxis
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter("{x:g}")
    axes.minorticks_off()
