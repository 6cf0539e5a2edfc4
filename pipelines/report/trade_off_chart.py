"""The picture of a trade-off: time against energy or memory, with the arms that nobody would pass by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from pipelines.analysis.quantities.cost import cost_text
from pipelines.report.charts import fold
from pipelines.report.svg import BLUE, GREY, INK, NARROW, RED, canvas
from pipelines.report.trade_off import Choice, TradeOff
from pipelines.units import MB

NAMED = 8
"""Arms that are named in the picture; the table of arms has all of them."""
SPAN = 5.0
"""From this ratio of the largest to the smallest on, an axis is logarithmic."""


def chart(found: TradeOff, width: int) -> Figure:
    """Draw time per unit against energy per unit or peak memory; the line joins what is not dominated."""
    figure, axes = canvas(width, 400)
    size = 1.0 if found.of == "energy" else MB
    x, y = (lambda one: one.ns_per_unit / 1e3), (lambda one: one.value / size)
    best = [one for one in found.choices if one.same and not one.dominated]
    beside = [one for one in found.choices if one.dominated and one.same]
    different = [one for one in found.choices if not one.same]
    axes.plot([x(one) for one in best], [y(one) for one in best], color=BLUE, linewidth=1, linestyle="--")
    looks: tuple[tuple[list[Choice], dict[str, Any]], ...] = (
        (beside, {"facecolors": "none", "edgecolors": GREY}),
        (different, {"c": RED, "marker": "x"}),
        (best, {"c": BLUE}),
    )
    for choices, look in looks:
        axes.scatter([x(one) for one in choices], [y(one) for one in choices], s=50, zorder=3, **look)
    for number, one in enumerate(best[:NAMED]):
        _name(axes, one, (x(one), y(one)), width, above=number % 2 == 0)
    _scale(axes, "x", [x(one) for one in found.choices])
    _scale(axes, "y", [y(one) for one in found.choices])
    axes.margins(0.12, 0.18)
    axes.set_xlabel("microseconds per unit")
    axes.set_ylabel("J per unit" if found.of == "energy" else "peak memory, MB")
    return figure


def _name(axes: Axes, one: Choice, place: tuple[float, float], width: int, above: bool) -> None:
    text = fold(one.name, 16 if width <= NARROW else 28)
    if one.cost is not None:
        text += f"\n{cost_text(one.cost)} per million"
    offset, side = ((0, 8), "bottom") if above else ((0, -8), "top")
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
