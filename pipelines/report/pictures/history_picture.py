"""The picture of a history: each arm over the versions, with the levels that change points leave."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from perfsweep.pipelines.analysis.across.version_history import ArmHistory, History
from perfsweep.pipelines.report.pictures.charts import fold
from perfsweep.pipelines.report.pictures.picture_file import write_picture
from perfsweep.pipelines.report.pictures.svg import BLUE, GREY, INK, RED

PANEL, FRAME = 190, 60
"""Pixels of an arm, and of the names of versions below all of them."""
MOST_NAMES = 24
"""Versions that are named; of more every second one is, or every third."""


def write_history(option: str, file: Path, found: History) -> None:
    """Draw a history into a file.

    Raises
    ------
    ConfigError
        The file cannot be written.
    """
    label = f"{len(found.arms)} arms over {found.versions} versions"
    write_picture(option, file, lambda width: history_chart(found, width), label)


def history_chart(found: History, width: int) -> Figure:
    """Each arm in a panel of its own: change of time against its first version, a point for each version."""
    figure = Figure(figsize=(width / 72, (FRAME + PANEL * len(found.arms)) / 72), dpi=72, facecolor="none")
    panels = figure.subplots(len(found.arms), 1, squeeze=False)[:, 0]
    for axes, arm in zip(panels, found.arms, strict=True):
        axes.set_facecolor("none")
        _draw(axes, arm)
    return figure


def _draw(axes: Axes, arm: ArmHistory) -> None:
    places = range(len(arm.versions))
    first = arm.series.values[0]
    middle, low, high = (
        [_change(value, first) for value in values]
        for values in (arm.series.values, arm.series.low, arm.series.high)
    )
    axes.vlines(places, low, high, GREY, linewidth=1)
    axes.scatter(places, middle, c=BLUE, s=18, zorder=3)
    for begin, end, colour in _levels(arm):
        level = _change(median(arm.series.values[begin:end]), first)
        axes.hlines(level, begin - 0.4, end - 0.6, colour, linewidth=2)
        if begin:
            axes.axvline(begin - 0.5, color=colour, linewidth=1, linestyle="--")
    relative = ", against the baseline" * arm.series.beside_reference
    axes.set_title(fold(f"{arm.arm}{relative}", 90), loc="left", fontsize=12, color=INK)
    axes.set_ylabel("change of time, %")
    stride = math.ceil(len(arm.versions) / MOST_NAMES)
    axes.set_xticks(list(places)[::stride], [_name(one.commit, one.sweep) for one in arm.versions][::stride])
    axes.tick_params(axis="x", labelrotation=45)
    axes.grid(axis="x", visible=False)
    axes.set_xlim(-0.6, len(arm.versions) - 0.4)


def _levels(arm: ArmHistory) -> Iterator[tuple[int, int, str]]:
    """Give the first and the last version, that one excluded, of each level, and the colour that it has."""
    points = arm.points.points if arm.points else ()
    begins = [0, *(point.index for point in points)]
    ends = [*begins[1:], len(arm.versions)]
    colours = [GREY, *(RED if point.shift > 0 else BLUE for point in points)]
    yield from zip(begins, ends, colours, strict=True)


def _change(value: float, first: float) -> float:
    """Turn a log time into percent against the first version."""
    return math.expm1(value - first) * 100


def _name(commit: str, sweep: str) -> str:
    return commit[:7] or sweep[:12]
