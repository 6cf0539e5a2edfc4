"""Figures of the report, each drawn from what compare found, for a page of some width.

They are made inside `svg.drawn`, which sets fonts and colours.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from perfsweep.pipelines.analysis.arm_records import Scaling, Work
from perfsweep.pipelines.analysis.combinations import Corners
from perfsweep.pipelines.analysis.effect_result import EffectResult
from perfsweep.pipelines.report.pictures.chart_data import RoundTimes, SizeCurve, Trace
from perfsweep.pipelines.report.pictures.svg import BLUE, GREY, HALF, INK, NARROW, RED, canvas

SPIKE_MARKERS = "vsD"
"""Forms of spikes, one for each cause; the rarest causes have none."""
LINES = (BLUE, "#e08b27", "#2f9e62", "#b05bd0", RED, "#12a5b5")
LARGE = 2.0
"""Beyond this factor times are drawn on a logarithmic axis."""
ROW, DENSE, LINE, FRAME = 24, 18, 14, 64
"""Pixels of a row, of one among many, of each further line of its name, and of what stands around all."""
MANY = 24
"""Rows from which on they stand closer, and the axis is written on both ends."""
TICK = 60
"""Pixels that the name of a tick needs."""
MOST_POINTS = 600
"""Rounds that are drawn as points of their own; of more the boxes say enough."""


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


def distributions(arms: Sequence[RoundTimes], width: int) -> Figure:
    """Every round's time per unit, one row for each arm."""
    times = [[time / 1e3 for time in arm.ns_per_unit] for arm in arms]
    figure, axes = row_figure([arm.label for arm in arms], width)
    line = {"color": GREY, "linewidth": 1}
    axes.boxplot(
        times,
        positions=range(len(times)),
        orientation="horizontal",
        whis=(0, 100),
        manage_ticks=False,
        boxprops=line,
        whiskerprops=line,
        capprops=line,
        medianprops={"color": BLUE, "linewidth": 2},
    )
    if sum(map(len, times)) <= MOST_POINTS:
        rows = [row for row, own in enumerate(times) for _ in own]
        axes.scatter([one for own in times for one in own], rows, c=BLUE, s=10, zorder=3)
    medians = [sorted(own)[len(own) // 2] for own in times]
    if max(medians) > 5 * min(medians) > 0:
        _logarithmic(axes, width)
    axes.set_xlabel("microseconds per unit" + ", a point for each round" * (width > NARROW))
    return figure


def memory(labels: Sequence[str], peaks_mb: Sequence[float], width: int) -> Figure:
    """Peak memory of every arm, MB."""
    figure, axes = row_figure(labels, width)
    axes.barh(range(len(labels)), peaks_mb, height=0.6, color=BLUE)
    axes.set_xlabel("peak memory, MB")
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


def scaling(effects: Sequence[EffectResult], width: int) -> Figure:
    """Speed against the number of ranks, a line for each ladder; dashed where no rank would be lost.

    Each point has its efficiency beside it, above the line where the work grows with the ranks.
    """
    lines: dict[str, list[Scaling]] = {}
    for result in sorted((r for r in effects if r.scaling), key=lambda r: r.scaling.more if r.scaling else 0):
        if result.scaling:
            lines.setdefault(_scaled(result, result.scaling), []).append(result.scaling)
    figure, axes = canvas(width, 340)
    most = max(points[-1].more for points in lines.values())
    axes.plot([1, most], [1, most], color=GREY, linewidth=1, linestyle="--", label="no rank lost")
    for (name, points), colour in zip(lines.items(), LINES, strict=False):
        ranks = [1.0, *(one.more for one in points)]
        speeds = [1.0, *(one.more * one.efficiency for one in points)]
        axes.plot(ranks, speeds, marker="o", color=colour, linewidth=2, label=name)
        for one in points:
            place = (one.more, one.more * one.efficiency)
            away = 9 if one.work is Work.WEAK else -9
            beside = {"textcoords": "offset points", "xytext": (0, away), "ha": "center", "color": colour}
            axes.annotate(f"{one.efficiency:.0%}", place, va="bottom" if away > 0 else "top", **beside)
        bounded = [one for one in points if one.low is not None and one.high is not None]
        axes.vlines(
            [one.more for one in bounded],
            [one.more * (one.low or 0.0) for one in bounded],
            [one.more * (one.high or 0.0) for one in bounded],
            GREY,
        )
    axes.set(xscale="log", yscale="log")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(base=2))
        axis.set_major_formatter("{x:g}")
    axes.minorticks_off()
    axes.set_xlabel("times the ranks of the base")
    axes.set_ylabel("times its speed")
    axes.legend()
    return figure


def _scaled(result: EffectResult, found: Scaling) -> str:
    """Name the line that an effect belongs to: a ladder has one, of other designs each effect its own."""
    ladder = result.effect.design == "ladder"
    name = result.effect.toggle if ladder else f"{result.effect.toggle} {result.effect.level}".strip()
    return f"{name}, {found.work.value} scaling" if found.work.value else name


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


def _plot_width(width: int) -> int:
    """Pixels that are left beside the names of rows."""
    return width * (50 if width <= NARROW else 60) // 100


def _logarithmic(axes: Axes, width: int) -> None:
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=_plot_width(width) // TICK))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.minorticks_off()
