"""Figures of the report, each drawn from what compare found, for a page of some width.

They are made inside `svg.drawn`, which sets fonts and colours.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from perfsweep.pipelines.analysis.combinations import Corners
from perfsweep.pipelines.report.pictures.chart_data import SizeCurve, Trace
from perfsweep.pipelines.report.pictures.svg import BLUE, GREY, HALF, INK, NARROW, RED, canvas

SPIKE_MARKERS = "vsD"
"""Forms of spikes, one for each cause; the rarest causes have none."""
LINES = (BLUE, "#e08b27", "#2f9e62", "#b05bd0", RED, "#12a5b5")
LARGE = 2.0
"""Beyond this factor times are drawn on a logarithmic axis."""
ROW, DENSE, LINE, FRAME = 24, 18, 14, 64
"""Pixels of a row, of one among many, of each further line of its name, and of the frame around all rows."""
MANY = 24
"""From this number of rows on, rows are closer together and the axis is drawn at both ends."""


def fold(name: str, most: int) -> str:
    """Break the lines of a name into some of about `most` characters, after commas, spaces, "=" and "_"."""
    if "\n" in name:
        return "\n".join(fold(line, most) for line in name.split("\n"))
    lines = [""]
    for part in re.findall(r"[^, =_]+[, =_]*", name):
        if lines[-1] and len(lines[-1]) + len(part.rstrip()) > most:
            lines.append("")
        lines[-1] += part
    return "\n".join(line.rstrip() for line in lines)


def interaction(corners: Corners, width: int) -> Figure:
    """Time against the first toggle, a line per level of the second; dotted where they would be parallel."""
    (one, other), (low, other_low), (high, other_high) = corners.toggles, corners.low, corners.high
    figure, axes = canvas(width, 300)
    lines = (
        (f"{other}={other_low}", [1.0, corners.first], GREY, "-"),
        (f"{other}={other_high}", [corners.second, corners.both], BLUE, "-"),
        ("if neither touched the other", [corners.second, corners.expected], BLUE, ":"),
    )
    for label, times, colour, dashes in lines:
        axes.plot([0, 1], times, marker="o", markersize=5, label=label, color=colour, linestyle=dashes)
    axes.set_xticks([0, 1], [f"{one}={low}", f"{one}={high}"])
    axes.set_xlim(-0.3, 1.3)
    times = (1.0, corners.first, corners.second, corners.both, corners.expected)
    if max(times) > LARGE * min(times):
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 5, 7)))
        axes.yaxis.set_major_formatter("{x:g}")
        axes.minorticks_off()
    axes.set_ylabel("time against neither")
    figure.legend(loc="outside lower center", ncols=1)
    return figure


def iterations(traces: Sequence[Trace], width: int) -> Figure:
    """Iteration times of a few arms, warm-up dotted; spikes are marked and named."""
    figure, axes = canvas(width, 420)
    for trace, colour in zip(traces, LINES, strict=False):
        if trace.has_warm_up:
            axes.plot(trace.warm_x, trace.warm_ms, color=colour, linewidth=1, ls=":")
        axes.plot(trace.timed_x, trace.timed_ms, color=colour, linewidth=1.5, label=trace.label)
        for one, marker in zip(trace.spikes, SPIKE_MARKERS, strict=False):
            looks = {"marker": marker, "s": 40, "c": colour, "zorder": 3}
            axes.scatter(one.x, one.ms, label=f"{trace.label}: {one.name}", **looks)
    axes.set_xlabel("iteration, from the start of the trial")
    axes.set_ylabel("ms")
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.minorticks_off()
    figure.legend(loc="outside lower center", ncols=max(1, width // 380))
    return figure


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


def row_figure(names: Sequence[str], width: int) -> tuple[Figure, Axes]:
    """A figure with a row for each name, the first on top, as high as its names need."""
    folded = [fold(name, 24 if width <= NARROW else 32 if width <= HALF else 56) for name in names]
    lines = max((name.count("\n") for name in folded), default=0)
    row = DENSE if len(names) > MANY else ROW
    figure, axes = canvas(width, FRAME + (row + LINE * lines) * len(names))
    axes.set_yticks(range(len(names)), folded)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="x", labeltop=len(names) > MANY)
    return figure, axes


def figure_column(axes: Axes, texts: Sequence[str]) -> None:
    """Write a text on the right of each row."""
    column = axes.secondary_yaxis("right")
    column.set_yticks(range(len(texts)), texts)
    column.tick_params(length=0)
    column.spines["right"].set_visible(False)
    axes.tick_params(axis="y", length=0)
