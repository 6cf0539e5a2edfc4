"""The picture of all winners together: what each of them still saves on top of those before it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure

from perfsweep.pipelines.analysis.combinations import Together
from perfsweep.pipelines.analysis.effect_columns import effect_name, speed_text
from perfsweep.pipelines.analysis.effect_result import EffectResult
from perfsweep.pipelines.analysis.todo import ToDo, todo
from perfsweep.pipelines.report.pictures.charts import figure_column, row_figure
from perfsweep.pipelines.report.pictures.effects_chart import LOOKS, Row
from perfsweep.pipelines.report.pictures.svg import BLUE, GREY, NARROW

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


def chart(together: Together, baseline: str, width: int) -> Figure:
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
