"""Pictures as files of their own, for a talk or a paper: effects, a history, the answer on one page."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from perfsweep.pipelines.analysis.compare import Comparison
from perfsweep.pipelines.analysis.version_history import ArmHistory, History
from perfsweep.pipelines.report import effects_chart, svg
from perfsweep.pipelines.report.sentences import COMMANDS, conclusions, open_questions, opening
from perfsweep.pipelines.report.svg import BLUE, GREY, INK, RED, fold
from perfsweep.pipelines.store.files import write_atomically
from perfsweep.workloads.errors import ConfigError

PICTURES = (".svg", ".png", ".pdf")
"""Kinds of pictures, by the ends of their names."""

WIDTH, HEIGHT, EDGE = 595, 842, 42
"""Of a page of A4, and its margins, in points."""

SIZE, LEADING, LETTERS = 9.0, 13.0, 92
"""Points of a letter and from line to line, and letters of a line."""

LEAST = 200
"""Points that the picture has at least: questions that leave it less are in the report."""


def refuse_other_kinds(option: str, file: Path, kinds: tuple[str, ...] = PICTURES) -> None:
    """Refuse a file whose name ends in none of some kinds.

    Raises
    ------
    ConfigError
        It does.
    """
    if file.suffix.lower() not in kinds:
        known = ", ".join(kinds[:-1]) + " or " * (len(kinds) > 1) + kinds[-1]
        raise ConfigError(
            f"{option} {file}: cannot write this kind of file. Give a name that ends in {known}."
        )


def write_picture(option: str, file: Path, chart: Callable[[int], Figure], label: str) -> None:
    """Draw a chart into a file of the kind that its name says; `label` is for people who cannot see it.

    Raises
    ------
    ConfigError
        The file cannot be written.
    """
    kind = file.suffix.lower().removeprefix(".")
    content = svg.alone(chart, label).encode() if kind == "svg" else svg.exported(chart, kind)
    write_file(option, file, content)


def write_file(option: str, file: Path, content: bytes) -> None:
    """Write a file that an option names, and the folder that it is in.

    Raises
    ------
    ConfigError
        It cannot be written.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, content)
    except OSError as error:
        problem = error.strerror or str(error)
        raise ConfigError(f"{option} {file}: {problem}. Give a path that you may write to.") from None


def write_effects(option: str, file: Path, comparison: Comparison) -> None:
    """Draw the effects of a comparison into a file.

    Raises
    ------
    ConfigError
        No effect has an interval yet, or the file cannot be written.
    """
    chart = partial(effects_chart.chart, _rows(option, file, comparison), comparison.margin)
    write_picture(option, file, chart, f"Effects of {comparison.name}: speeds with 95 % intervals")


def write_page(option: str, file: Path, comparison: Comparison) -> None:
    """Write the answer of a comparison as one page.

    Raises
    ------
    ConfigError
        No effect has an interval yet, or the file cannot be written.
    """
    chart = partial(page_chart, _rows(option, file, comparison), comparison)
    write_file(option, file, svg.exported(chart, "pdf", WIDTH))


def _rows(option: str, file: Path, comparison: Comparison) -> list[effects_chart.Row]:
    if rows := effects_chart.effect_rows(comparison):
        return rows
    raise ConfigError(f"{option} {file}: no effect has an interval yet. Measure two rounds or more first.")


Line = tuple[str, dict[str, Any]]
"""A line of text with its looks, as matplotlib calls them."""

PLAIN: dict[str, Any] = {"fontsize": SIZE}
BOLD = {**PLAIN, "fontweight": "bold"}
CODE = {**PLAIN, "fontfamily": "DejaVu Sans Mono", "fontsize": SIZE - 1}


def page_chart(rows: Sequence[effects_chart.Row], comparison: Comparison, width: int = WIDTH) -> Figure:
    """Draw the page; `rows` are those of the picture of the effects."""
    figure = effects_chart.chart(rows, comparison.margin, width)
    drawn = figure.get_figheight() * 72
    figure.set_size_inches(width / 72, HEIGHT / 72)
    head, follows, questions = [*_head(comparison)], [*_follows(comparison)], [*_questions(comparison)]
    room = HEIGHT - 2 * EDGE - LEADING * (len(head) + len(follows) + 3)
    kept = max(0, int((room - min(drawn, LEAST)) / LEADING))
    if len(questions) > kept:
        more = len(questions) - max(0, kept - 1)
        questions = [*questions[: max(0, kept - 1)], (f"{more} more lines in the report", PLAIN)]
    drawn = min(drawn, room - LEADING * len(questions))
    top = _write(figure, head, HEIGHT - EDGE) - LEADING / 2
    engine = figure.get_layout_engine()
    assert isinstance(engine, ConstrainedLayoutEngine), "as svg.STYLE says"
    engine.set(rect=(EDGE / width, (top - drawn) / HEIGHT, 1 - 2 * EDGE / width, drawn / HEIGHT))
    _write(figure, [*questions, *follows], top - drawn - LEADING)
    return figure


def _write(figure: Figure, lines: Sequence[Line], top: float) -> float:
    """Write lines below a height in points; returns the height for the next line."""
    width = figure.get_figwidth() * 72
    for text, looks in lines:
        top -= LEADING
        figure.text(EDGE / width, top / HEIGHT, text, parse_math=False, color="black", **looks)
    return top


def _head(comparison: Comparison) -> Iterator[Line]:
    yield (comparison.name, {**BOLD, "fontsize": 14})
    yield from ((text, PLAIN) for text in _folded(opening(comparison)))
    for words in comparison.noise:
        yield from ((text, BOLD) for text in _folded(f"! {words}"))


def _questions(comparison: Comparison) -> Iterator[Line]:
    for words in open_questions(comparison):
        yield from ((text, PLAIN) for text in _folded(f"- {words}"))


def _follows(comparison: Comparison) -> Iterator[Line]:
    for label, words in conclusions(comparison):
        yield (label, BOLD)
        yield from ((text, CODE if label in COMMANDS else PLAIN) for text in _folded(words))


def _folded(text: str) -> list[str]:
    return textwrap.wrap(text, LETTERS, break_on_hyphens=False)


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
