"""Figures of the report, each drawn from what compare found; colours read on light and on dark pages."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import plotly.graph_objects as go

from pipelines.analysis.combinations import Corners
from pipelines.analysis.judge import EffectResult
from pipelines.report.chart_data import RoundTimes, SizeCurve, Trace

INK = "#6b6b6b"
"""Of words where a page does not say otherwise; the report's own page colours them by its scheme."""
GOOD, BAD, GREY = "#2a78d6", "#c0392b", "#8a97a5"
FEW_ARMS = 6
"""Traces drawn at once; the others wait in the legend for a click."""
BELOW = {"orientation": "h", "yanchor": "top", "y": -0.15}
ABOVE = {"orientation": "h", "yanchor": "bottom", "y": 1.05}
"""Legends beside a figure would leave a phone no room for the figure itself."""
LARGE = 2.0
"""Beyond this factor effects are drawn on a logarithmic axis: in percent, 10x and 1000x look the same."""


def effects(named: Sequence[tuple[str, EffectResult]], margin: float) -> go.Figure:
    """Effects with their intervals, one line each; named results must have a ratio and an interval."""
    ordered = sorted(named, key=lambda pair: pair[1].ratio or 0.0, reverse=True)
    results = [result for _, result in ordered]
    logarithmic = any(not 1 / LARGE < value < LARGE for r in results for value in (r.low, r.high) if value)
    place = (lambda ratio: ratio) if logarithmic else (lambda ratio: (ratio - 1) * 100)
    x = [place(r.ratio) for r in results]
    figure = go.Figure(
        go.Scatter(
            x=x,
            y=[fold(name) for name, _ in ordered],
            mode="markers",
            marker={"size": 9, "color": [GOOD if r.parity_ok else BAD for r in results]},
            error_x={
                "type": "data",
                "symmetric": False,
                "color": GREY,
                "array": [place(r.high) - value for r, value in zip(results, x, strict=True)],
                "arrayminus": [value - place(r.low) for r, value in zip(results, x, strict=True)],
            },
            hovertemplate="%{y}: %{x:.3g}<extra></extra>",
        )
    )
    edges = (1 - margin, 1 + margin)
    figure.add_vrect(x0=place(edges[0]), x1=place(edges[1]), fillcolor="#888888", opacity=0.2, line_width=0)
    figure.add_vline(x=place(1.0), line_width=1, line_color="#888888")
    _frame(figure, "time against the base" if logarithmic else "change of time, % (95 % interval)")
    figure.update_layout(height=120 + row_height([name for name, _ in ordered], 30) * len(results))
    if logarithmic:
        ends = [value for r in results for value in (r.low, r.high) if value]
        ticks = factor_ticks(min(ends), max(ends))
        figure.update_xaxes(type="log", tickvals=list(ticks), ticktext=list(ticks.values()))
        figure.update_xaxes(range=[math.log10(min(*ends, 1.0)) - 0.1, math.log10(max(*ends, 1.0)) + 0.1])
    return figure


MOST_TICKS = 9


def factor_ticks(low: float, high: float) -> dict[float, str]:
    """Ratios worth a tick between two ratios, 1 always, with their names; no more than fit side by side."""
    low, high = min(low, 1.0) / 1.1, max(high, 1.0) * 1.1
    ticks: list[float] = []
    for steps in ((1, 1.2, 1.5, 2, 3, 5, 7), (1, 2, 5), (1,)):
        factors = [
            step * 10.0**power
            for power in range(math.ceil(math.log10(max(high, 1 / low))) + 1)
            for step in steps
        ]
        ticks = sorted(
            value for value in {*factors, *(1 / factor for factor in factors)} if low <= value <= high
        )
        if len(ticks) <= MOST_TICKS:
            break
    return {
        value: "same" if value == 1 else f"{1 / value:g}x less" if value < 1 else f"{value:g}x more"
        for value in ticks
    }


FOLD = 28
"""Characters after which a name on an axis is folded, so that a phone has room for what it names."""


def fold(name: str) -> str:
    """Break a long name into several lines, after commas and spaces."""
    lines = [""]
    for part in re.findall(r"[^, ]+[, ]*", name):
        if lines[-1] and len(lines[-1]) + len(part.rstrip()) > FOLD:
            lines.append("")
        lines[-1] += part
    return "<br>".join(line.rstrip() for line in lines)


def row_height(names: Sequence[str], least: int) -> int:
    """Pixels that each row of an axis needs for these names."""
    return max([least, *(6 + 14 * (fold(name).count("<br>") + 1) for name in names)])


def interaction(corners: Corners) -> go.Figure:
    """Time against the first toggle, a line per level of the second; dotted where they would be parallel."""
    (one, other), (low, other_low), (high, other_high) = corners.toggles, corners.low, corners.high
    x = [f"{one}={low}", f"{one}={high}"]
    dotted = {"color": GOOD, "width": 1, "dash": "dot"}
    lines = (
        (f"{other}={other_low}", [1.0, corners.first], {"color": GREY, "width": 2}),
        (f"{other}={other_high}", [corners.second, corners.both], {"color": GOOD, "width": 2}),
        ("if neither touched the other", [corners.second, corners.expected], dotted),
    )
    figure = go.Figure()
    for label, y, line in lines:
        figure.add_scatter(x=x, y=y, mode="lines+markers", name=label, line=line)
    figure.update_traces(hovertemplate="%{y:.3g}<extra></extra>")
    _frame(figure, "", 330)
    times = (1.0, corners.first, corners.second, corners.both, corners.expected)
    if max(times) > LARGE * min(times):
        figure.update_yaxes(type="log")
    figure.update_yaxes(title_text="time against neither")
    figure.update_xaxes(type="category", range=[-0.2, 1.2])
    figure.update_layout(legend=BELOW)
    return figure


def iterations(traces: Sequence[Trace], first: Sequence[str]) -> go.Figure:
    """Iteration times of every arm, warm-up dotted; arms but `first` (ids) are hidden until clicked."""
    figure = go.Figure()
    palette = ["#2a78d6", "#e08b27", "#2f9e62", "#b05bd0", "#c0392b", "#12a5b5", "#8a97a5"]
    # Those that are drawn at first come first, so that no two of them share a colour.
    for number, trace in enumerate(sorted(traces, key=lambda trace: trace.arm not in first)):
        colour = palette[number % len(palette)]
        visible = True if trace.arm in first else "legendonly"
        shared = {"mode": "lines", "legendgroup": trace.arm, "visible": visible}
        if trace.warm_x:
            shown = {"line": {"color": colour, "dash": "dot", "width": 1}, "showlegend": False, **shared}
            figure.add_scatter(x=trace.warm_x, y=trace.warm_ms, name="warm-up", **shown)
        line = {"color": colour, "width": 1.5}
        figure.add_scatter(x=trace.timed_x, y=trace.timed_ms, line=line, name=trace.label, **shared)
    _frame(figure, "", 440)
    figure.update_yaxes(title_text="ms", type="log", dtick="D2")
    figure.update_layout(legend=BELOW)
    return figure


def distributions(arms: Sequence[RoundTimes]) -> go.Figure:
    """Every round's time per unit, one row for each arm."""
    figure = go.Figure()
    for arm in reversed(arms):
        times = [time / 1e3 for time in arm.ns_per_unit]
        figure.add_box(
            x=times,
            name=fold(arm.label),
            boxpoints="all",
            jitter=0.4,
            pointpos=0,
            marker={"color": GOOD, "size": 4},
        )
    height = 110 + row_height([arm.label for arm in arms], 30) * len(arms)
    _frame(figure, "microseconds per unit, one point for each round", height)
    figure.update_layout(showlegend=False)
    medians = [sorted(arm.ns_per_unit)[len(arm.ns_per_unit) // 2] for arm in arms]
    if medians and max(medians) > 5 * min(medians):
        figure.update_xaxes(type="log")
    return figure


def memory(labels: Sequence[str], peaks_mb: Sequence[float]) -> go.Figure:
    """Peak memory of every arm, MiB."""
    names = [fold(label) for label in labels]
    figure = go.Figure(go.Bar(x=list(peaks_mb)[::-1], y=names[::-1], orientation="h", marker={"color": GOOD}))
    _frame(figure, "peak memory, MB", 110 + row_height(labels, 26) * len(labels))
    return figure


def size_curve(curve: SizeCurve) -> go.Figure:
    """Time per unit against the size, with sizes that did not finish marked along the top."""
    fine = [size for size in curve.sizes if size.ns_per_unit is not None]
    lost = [size for size in curve.sizes if size.ns_per_unit is None]
    order = [size.text for size in curve.sizes]
    times = [(size.ns_per_unit or 0) / 1e3 for size in fine]
    figure = go.Figure(go.Scatter(x=[size.text for size in fine], y=times, mode="lines+markers"))
    figure.update_traces(line={"color": GOOD}, name="time")
    if lost:
        figure.add_scatter(
            x=[size.text for size in lost],
            y=[max(times, default=1.0)] * len(lost),
            mode="markers+text",
            text=[size.outcome for size in lost],
            textposition="top center",
            marker={"symbol": "x", "size": 12, "color": BAD},
            name="did not finish",
        )
    _frame(figure, curve.toggle, 360)
    figure.update_xaxes(type="category", categoryorder="array", categoryarray=order)
    figure.update_yaxes(title_text="microseconds per unit", rangemode="tozero")
    figure.update_layout(legend=ABOVE)
    return figure


def _frame(figure: go.Figure, x_title: str, height: int = 400) -> None:
    figure.update_layout(
        height=height,
        margin={"l": 10, "r": 20, "t": 10, "b": 50},
        xaxis_title=x_title,
        yaxis={"automargin": True},
        template="plotly_white",
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"color": INK},
    )
    figure.update_xaxes(gridcolor="rgba(136,136,136,0.25)", zeroline=False)
    figure.update_yaxes(gridcolor="rgba(136,136,136,0.25)", zeroline=False)
