"""Pictures of arms: phases of a unit's time, iterations of a trial, and memory along a profiled slice.

They are made inside `svg.drawn`, which sets fonts and colours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from perfsweep.pipelines.analysis.arm_results import ArmResult
from perfsweep.pipelines.analysis.compare import Comparison
from perfsweep.pipelines.report import svg
from perfsweep.pipelines.report.svg import (
    BLUE,
    GREY,
    INK,
    LINE,
    LINES,
    NARROW,
    canvas,
    figure_column,
    log_axis,
    row_figure,
)
from perfsweep.pipelines.report.tables import effects_by_design
from perfsweep.pipelines.store.files import write_atomically
from perfsweep.pipelines.store.profiles import Kept, MemoryCourse, read_course
from perfsweep.pipelines.store.records import read_iterations
from perfsweep.pipelines.store.trial_files import iteration_times, phase_times
from perfsweep.pipelines.units import MB, duration
from perfsweep.workloads.errors import RecordError

MOST_PHASES = len(LINES)
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
    own, others = phases[:MOST_PHASES], phases[MOST_PHASES:]
    bars = []
    for arm in arms:
        whole = arm.ns_per_unit or 0.0
        times = {one.phase: one.ns_per_unit for one in arm.phases}
        parts = [times.get(name, 0.0) for name in own]
        parts += [sum(times.get(name, 0.0) for name in others)] if others else []
        parts += [max(0.0, whole - sum(parts))]
        # Phases are of all rounds; the bar is of rounds that the arm shares with the baseline.
        paired = arm.paired_ns / whole if arm.paired_ns else 1.0
        bars.append(Bar(arm.name or arm.label, paired * whole, tuple(paired * part for part in parts)))
    names = (*own, *([OTHERS] if others else []), REST)
    return Breakdown(comparison.unit, names, tuple(bars))


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


def phases_chart(found: Breakdown, width: int) -> Figure:
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


POINTS = 300
"""Points of a trace: longer series are drawn as medians of equal bins, which keeps the page small and periods
visible."""


SPIKE_MARKERS = "vsD"
"""Forms of spikes, one for each cause; the rarest causes have none."""
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


def iterations_chart(traces: Sequence[Trace], width: int) -> Figure:
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


PICTURE = "memory.svg"
MOST_POINTS = 1200
"""Points of a line; of more the highest of each few is drawn."""
NAMED_SHARE = 0.06
"""Least share of the slice of a phase that is named, for each part of the width of a desk."""
RESERVED, SHADES = "#e08b27", (0.25, 0.1)


def write_memory_picture(kept: Kept) -> Path | None:
    """Draw the memory of a profile into its folder; None where it has none."""
    if (course := read_course(kept.folder)) is None:
        return None
    file = kept.folder / PICTURE
    label = f"Memory of {kept.profile.arm.label}"
    write_atomically(file, svg.alone(partial(memory_chart, course), label).encode())
    return file


def memory_chart(course: MemoryCourse, width: int) -> Figure:
    """Draw what tensors hold, what the allocator has reserved, and below the process's resident memory."""
    figure = Figure(figsize=(width / 72, 420 / 72), dpi=72, facecolor="none")
    tensors, host = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    for axes in (tensors, host):
        axes.set_facecolor("none")
        for end_ns in course.iteration_ns[:-1]:
            axes.axvline(end_ns / 1e6, color=LINE, linewidth=1)
    _shade_phases(tensors, course, width)
    _steps(tensors, course.allocated_ns, course.allocated_bytes, BLUE, "held by tensors")
    if course.on_device:
        _steps(tensors, course.sampled_ns, course.reserved_bytes, RESERVED, "reserved by the allocator")
        tensors.legend(loc="lower right")
    _steps(host, course.sampled_ns, course.host_bytes, GREY, "")
    tensors.set_ylabel("MB" if course.on_device else "MB, since the slice began")
    host.set_ylabel("host, MB")
    host.set_xlabel("ms")
    return figure


def _steps(axes: Axes, times_ns: np.ndarray, sizes: np.ndarray, colour: str, label: str) -> None:
    times_ns, sizes = thinned(times_ns, sizes)
    axes.step(times_ns / 1e6, sizes / MB, where="post", color=colour, linewidth=1.2, label=label)


def thinned(times_ns: np.ndarray, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Keep at most `MOST_POINTS` points: of each few the highest, so that no peak is lost."""
    if len(sizes) <= MOST_POINTS:
        return times_ns, sizes
    starts = np.linspace(0, len(sizes), MOST_POINTS, endpoint=False).astype(int)
    parts = np.split(np.arange(len(sizes)), starts[1:])
    highest = [int(part[sizes[part].argmax()]) for part in parts]
    return times_ns[highest], sizes[highest]


def _shade_phases(axes: Axes, course: MemoryCourse, width: int) -> None:
    """Shade the outermost phases in turns, and name the ones that are long enough."""
    end_ns = max(int(course.iteration_ns[-1]) if len(course.iteration_ns) else 0, 1)
    least = NAMED_SHARE * (3 if width <= NARROW else 1)
    spans = zip(course.phase_names, course.phase_start_ns, course.phase_end_ns, strict=True)
    outer = [(str(name), start, end) for name, start, end in spans if "/" not in str(name)]
    for number, (name, start, end) in enumerate(outer):
        axes.axvspan(start / 1e6, end / 1e6, color=GREY, alpha=SHADES[number % 2], linewidth=0)
        if (end - start) / end_ns >= least:
            axes.annotate(
                name,
                ((start + end) / 2e6, 1.0),
                xycoords=("data", "axes fraction"),
                ha="center",
                va="bottom",
                color=INK,
                fontsize=9,
            )
