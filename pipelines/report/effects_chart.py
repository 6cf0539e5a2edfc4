"""Pictures of effects: speeds with intervals as the tables have them, steps together, and interactions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from perfsweep.pipelines.analysis.combinations import Corners, Together
from perfsweep.pipelines.analysis.compare import Comparison
from perfsweep.pipelines.analysis.effect_result import (
    IN_ORDER,
    EffectResult,
    ToDo,
    effect_name,
    size,
    speed_text,
    todo,
)
from perfsweep.pipelines.report.svg import (
    AMBER,
    BLUE,
    GREEN,
    GREY,
    NARROW,
    RED,
    canvas,
    figure_column,
    log_axis,
    row_figure,
)
from perfsweep.pipelines.report.tables import effects_by_design, has_several_designs, heading


@dataclass(frozen=True)
class Look:
    """The colour and the form of a point; the form says the same as the colour."""

    colour: str
    marker: str
    filled: bool = True


LOOKS = {
    ToDo.TURN_ON: Look(GREEN, "o"),
    ToDo.UNCHECKED: Look(GREEN, "o", filled=False),
    ToDo.MORE_TOGETHER: Look(GREEN, "P"),
    ToDo.LESS_TOGETHER: Look(RED, "*"),
    ToDo.LEAVE_OFF: Look(RED, "s"),
    ToDo.CHANGES_RESULTS: Look(RED, "X"),
    ToDo.LESS_WORK: Look(RED, "X"),
    ToDo.NO_DIFFERENCE: Look(BLUE, "|"),
    ToDo.UNDECIDED: Look(AMBER, "D", filled=False),
    ToDo.TOO_NOISY: Look(AMBER, "v", filled=False),
    ToDo.NOT_HERE: Look(GREY, "x"),
    ToDo.NO_TIME: Look(GREY, "x"),
}
BEYOND = 3.0
"""The axis reaches this factor beyond the outermost points: wider intervals end in an arrow."""
CHARACTER, APART = 7.2, 10
"""Pixels of a character, and the least between the names of two ticks."""
DIGITS = (2, 5, 1.5, 3, 1.2, 7, 1.1, 1.05, 1.02, 1.01)
"""Factors that are worth a tick, within each power of ten, the most useful first."""


@dataclass(frozen=True)
class Row:
    """A row of the picture: an effect, or without one the heading of those below it."""

    name: str
    result: EffectResult | None = None

    @property
    def figure(self) -> str:
        """The speed with its interval: ``1.53x faster [1.33 .. 1.75]``."""
        return size(self.result) if self.result else ""

    @property
    def short_figure(self) -> str:
        """The same for a phone, where the side of its point says the direction: ``1.53x [1.33 .. 1.75]``."""
        return self.figure.replace(" faster [", " [").replace(" slower [", " [")


def effect_rows(comparison: Comparison) -> list[Row]:
    """Put effects that have an interval in the order of the tables, below the headings of their groups."""
    several = has_several_designs(comparison)
    rows: list[Row] = []
    for title, results in effects_by_design(comparison.effects):
        drawn = [r for r in results if r.ratio is not None and r.low is not None and r.high is not None]
        for words, group in groupby(drawn, key=_group):
            name = ": ".join(filter(None, [title if several or not words else "", words]))
            rows += [Row(name), *(Row(effect_name(r), r) for r in group)]
    return rows


def _group(result: EffectResult) -> str:
    return "" if result.effect.design in IN_ORDER else heading(result)


def chart(rows: Sequence[Row], margin: float, width: int) -> Figure:
    """Draw speeds against the base with their intervals; within the grey band there is no difference."""
    narrow = width <= NARROW
    names = [f"{row.name}\n{row.short_figure}" if narrow and row.figure else row.name for row in rows]
    figure, axes = row_figure(names, width)
    effects = [(place, row.result) for place, row in enumerate(rows) if row.result]
    low, high = limits([result for _, result in effects], margin)
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    axes.axvspan(1 / (1 + margin), 1 / (1 - margin), color=GREY, alpha=0.25, linewidth=0)
    axes.axvline(1.0, color=GREY, linewidth=1)
    for place, result in effects:
        _point(axes, place, result, LOOKS[todo(result)])
    _headings(axes, rows)
    if not narrow:
        figure_column(axes, [row.figure for row in rows])
    ticks = speed_ticks(low, high, _plot_width(axes, rows, width))
    axes.set_xticks(list(ticks), list(ticks.values()))
    axes.minorticks_off()
    axes.set_xlabel(
        "speed against the baseline, with its 95 % interval" if not narrow else "speed, 95 % interval"
    )
    return figure


def limits(results: Sequence[EffectResult], margin: float) -> tuple[float, float]:
    """Give the speeds between which an axis shows all points and, as far as they are narrow, intervals."""
    points = [1.0, *(result.speed or 1.0 for result in results)]
    lowest, highest = min(points), max(points)
    low = min(
        lowest, *(max(result.speed_low or 1.0, lowest / BEYOND) for result in results), 1 / (1 + margin)
    )
    high = max(highest, *(min(result.speed_high or 1.0, highest * BEYOND) for result in results), 1 + margin)
    room = (high / low) ** 0.05
    return low / room, high * room


def speed_ticks(low: float, high: float, pixels: float) -> dict[float, str]:
    """Choose speeds between two that are worth a tick, with names that do not overlap in so many pixels."""
    taken: list[tuple[float, float]] = []
    ticks: dict[float, str] = {}
    for value, name in _candidates(low, high):
        at = math.log(value) / math.log(high / low) * pixels
        half = CHARACTER * max(map(len, name.split("\n"))) / 2
        if all(abs(at - other) >= half + own + APART for other, own in taken):
            taken.append((at, half))
            ticks[value] = name
    return dict(sorted(ticks.items()))


def _candidates(low: float, high: float) -> Iterator[tuple[float, str]]:
    decades = range(math.ceil(math.log10(max(high, 1 / low))) + 1)
    powers = [10.0**power for power in decades]
    for factor in (
        *powers,
        *(digit * power for digit in DIGITS for power in powers if digit >= 2 or power == 1),
    ):
        for value, word in ((factor, "faster"), (1 / factor, "slower")):
            if low <= value <= high and not (factor == 1 and word == "slower"):
                yield value, "same" if factor == 1 else f"{factor:g}x\n{word}"


def _point(axes: Axes, place: int, result: EffectResult, look: Look) -> None:
    speed, low, high = result.speed or 1.0, result.speed_low or 1.0, result.speed_high or 1.0
    axes.hlines(place, low, high, look.colour, linewidth=2)
    left, right = axes.get_xlim()
    for beyond, end, arrow in ((low < left, left, "<"), (high > right, right, ">")):
        if beyond:
            axes.scatter([end], [place], c=look.colour, marker=arrow, s=40, clip_on=False)
    face = look.colour if look.filled else "none"
    form: dict[str, Any] = (
        {"c": look.colour} if look.marker in "x|" else {"facecolors": face, "edgecolors": look.colour}
    )
    axes.scatter([speed], [place], marker=look.marker, s=60, linewidths=1.6, zorder=3, **form)


def _headings(axes: Axes, rows: Sequence[Row]) -> None:
    for row, label in zip(rows, axes.get_yticklabels(), strict=True):
        if row.result is None:
            label.set_fontweight("bold")
            label.set_fontsize(10.5)


def _plot_width(axes: Axes, rows: Sequence[Row], width: int) -> float:
    """Estimate the pixels between the names of the rows and their figures."""
    left = max(len(line) for label in axes.get_yticklabels() for line in label.get_text().split("\n"))
    right = 0 if width <= NARROW else max(len(row.figure) for row in rows)
    return max(width - CHARACTER * (left + right) - 30, 60)


NOT_MEASURED = "not measured"


@dataclass(frozen=True)
class Step:
    """A step from one share of the baseline's time to another; `result` is None of one without a time."""

    name: str
    before: float
    after: float
    result: EffectResult | None = None


def steps(together: Together) -> list[Step]:
    """Place each step between the times before and after it, as shares of the baseline's time.

    Steps are placed from the baseline on, and after one without a time from the whole back: the whole is
    measured, so no gain is guessed. Steps without a time span what is left between.
    """
    ratios = [_ratio(step) for step in together.steps]
    lost = [place for place, ratio in enumerate(ratios) if ratio is None]
    first, last = (lost[0], lost[-1]) if lost else (len(ratios), len(ratios))
    times = _from(1.0, ratios[:first])
    end = together.whole.ratio or times[-1]
    back = [1 / ratio for ratio in reversed(ratios[last + 1 :]) if ratio]
    after = list(reversed(_from(end, back)))
    found = [_step(r, *times[place : place + 2]) for place, r in enumerate(together.steps[:first])]
    found += [_step(r, times[-1], after[0]) for r in together.steps[first : last + 1]]
    return found + [_step(r, *after[place : place + 2]) for place, r in enumerate(together.steps[last + 1 :])]


def _from(start: float, ratios: Sequence[float | None]) -> list[float]:
    times = [start]
    for ratio in ratios:
        times.append(times[-1] * (ratio or 1.0))
    return times


def _ratio(result: EffectResult) -> float | None:
    """The ratio of times of a step; a level that cannot act here changes nothing."""
    return 1.0 if todo(result) is ToDo.NOT_HERE else result.ratio


def _step(result: EffectResult, before: float, after: float) -> Step:
    return Step(effect_name(result), before, after, result if _ratio(result) else None)


def waterfall(together: Together, baseline: str, width: int) -> Figure:
    """Draw the baseline, each step, and all of them, in percent of the baseline's time."""
    found = steps(together)
    whole = Row("all together", together.whole)
    figures = ["", *(speed_text(one.result) if one.result else NOT_MEASURED for one in found), whole.figure]
    names = [baseline, *(f"+ {one.name}" for one in found), whole.name]
    if narrow := width <= NARROW:
        figures[-1] = whole.short_figure
        names = [f"{name}\n{text}" if text else name for name, text in zip(names, figures, strict=True)]
    figure, axes = row_figure(names, width)
    end = 100 * (together.whole.ratio or 0.0)
    axes.barh([0, len(names) - 1], [100, end], height=0.62, color=[GREY, BLUE])
    for place, one in enumerate(found, 1):
        low, high = sorted((100 * one.before, 100 * one.after))
        colour = LOOKS[todo(one.result)].colour if one.result else GREY
        looks: dict[str, Any] = {"color": colour}
        if one.result is None:
            looks = {"facecolor": "none", "edgecolor": GREY, "hatch": "///"}
        axes.barh([place], [high - low], left=low, height=0.62, **looks)
        axes.vlines(100 * one.before, place - 1, place, GREY, linewidth=1)
    axes.vlines(end, len(names) - 2, len(names) - 1, GREY, linewidth=1)
    if not narrow:
        figure_column(axes, figures)
    axes.set_xlim(0, None)
    axes.set_xlabel("time per unit, % of the baseline's")
    return figure


LARGE = 2.0
"""Beyond this factor times are drawn on a logarithmic axis."""


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
