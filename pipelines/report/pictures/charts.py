"""Figures of the report, for a page of some width: iterations of arms, times of sizes, interactions.

They are made inside `svg.drawn`, which sets fonts and colours.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from perfsweep.pipelines.analysis.combinations import Corners
from perfsweep.pipelines.report.pictures.svg import BLUE, GREY, HALF, INK, NARROW, RED, canvas
from perfsweep.pipelines.store.records import Arm, read_iterations
from perfsweep.pipelines.store.trial_files import iteration_times, phase_times
from perfsweep.workloads.errors import RecordError

POINTS = 300
"""Points of a trace: longer series are drawn as medians of equal bins, which keeps the page small and periods
visible."""


SPIKE, CAUSE = 3.0, 0.25
"""An iteration of this many medians is a spike, and a phase with this part of its excess is a cause."""
REGULAR = 0.8
"""Part of the distances between spikes that are equal where they come at regular intervals."""


@dataclass(frozen=True)
class Spikes:
    """Iterations that took much longer for one reason; `name` says why, and how often: evaluate, every 55."""

    name: str
    x: tuple[float, ...]
    ms: tuple[float, ...]


@dataclass(frozen=True)
class Trace:
    """Iteration times of one trial in ms, thinned to at most POINTS; x counts iterations from its start."""

    arm: str
    label: str
    warm_x: tuple[float, ...]
    warm_ms: tuple[float, ...]
    timed_x: tuple[float, ...]
    timed_ms: tuple[float, ...]
    spikes: tuple[Spikes, ...] = ()

    @property
    def has_warm_up(self) -> bool:
        """Whether a line leads up to the timed part; a discarded job is one time, which is none."""
        return len(self.warm_x) > 1


def thin(values: np.ndarray, first: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Give positions from `first` on and values [N], or medians of bins where N is above POINTS."""
    bins = np.array_split(np.arange(len(values)), min(len(values), POINTS)) if len(values) else []
    return tuple(first + float(np.mean(bin)) for bin in bins), tuple(
        float(np.median(values[bin])) for bin in bins
    )


def last_traces(trials: pl.DataFrame, names: Mapping[str, str]) -> list[Trace]:
    """Read the last used round of every arm (id to name); unreadable series are left to compare to name."""
    traces = []
    for arm, name in names.items():
        own = trials.filter(pl.col("used") & (pl.col("arm") == arm) & (pl.col("outcome") == "ok"))
        if own.height == 0:
            continue
        try:
            arrays = read_iterations(Path(own.sort("round")["folder"][-1]))
        except RecordError:
            continue
        warm = arrays.get("warmup_wall_ns", np.zeros(0)) / 1e6
        timed = thin(iteration_times(arrays) / 1e6, len(warm))
        traces.append(Trace(arm, name, *thin(warm, 0), *timed, spikes(arrays, len(warm))))
    return traces


def spikes(arrays: Mapping[str, np.ndarray], first: int) -> tuple[Spikes, ...]:
    """Find the timed iterations that took much longer, by the phases that were longer in them.

    Those with the largest sum come first; positions count from `first`.
    """
    times = iteration_times(arrays) / 1e6
    found: dict[str, list[int]] = {}
    for place in np.flatnonzero(times > SPIKE * np.median(times)):
        found.setdefault(_cause(arrays, int(place)), []).append(int(place))
    named = [
        Spikes(
            f"{cause}, {_how_often(places, len(times))}",
            tuple(float(first + place) for place in places),
            tuple(float(times[place]) for place in places),
        )
        for cause, places in found.items()
    ]
    return tuple(sorted(named, key=lambda one: -sum(one.ms)))


def _cause(arrays: Mapping[str, np.ndarray], place: int) -> str:
    """Name the phases that an iteration spends more time in than usual."""
    times = iteration_times(arrays)
    excess = times[place] - np.median(times)
    shares: dict[str, float] = {}
    for key in arrays:
        if key.startswith("host_"):
            name = key.removeprefix("host_")
            own = phase_times(arrays, name)[1]
            shares[name] = float((own[place] - np.median(own)) / excess)
    causes = [name for name in sorted(shares, key=lambda one: -shares[one]) if shares[name] >= CAUSE]
    return " and ".join(causes) or "outside phases"


def _how_often(places: Sequence[int], iterations: int) -> str:
    gaps = np.diff(places)
    if len(gaps) and np.mean(gaps == np.median(gaps)) >= REGULAR:
        return f"every {int(np.median(gaps))}"
    return f"{len(places)} of {iterations}"


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
        log_axis(axes, "y", (1, 1.5, 2, 3, 5, 7))
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
    log_axis(axes, "y")
    figure.legend(loc="outside lower center", ncols=max(1, width // 380))
    return figure


def log_axis(axes: Axes, name: str, ticks: Sequence[float] = (1, 2, 5)) -> None:
    """Make an axis logarithmic, with plain numbers at some ticks of each power of ten."""
    axes.set(**{f"{name}scale": "log"})
    axis = axes.xaxis if name == "x" else axes.yaxis
    axis.set_major_locator(LogLocator(subs=ticks))
    axis.set_major_formatter("{x:g}")
    axes.minorticks_off()


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
