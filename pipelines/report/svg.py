"""Figures with their axes and rows, and as SVG inside a page or as files of their own.

Words stay words, colours follow the page, and nothing needs a script.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO, StringIO
from typing import Any

from markupsafe import Markup, escape
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.colors import get_named_colors_mapping
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

INK, LINE, BLUE, RED, GREY, GREEN, AMBER = (
    f"perfsweep:{name}" for name in ("soft", "line", "blue", "red", "grey", "good", "warn")
)
"""Names of colours of the page, which has others by night than by day."""
_STAND_INS = {
    name: f"#0101{number:02}" for number, name in enumerate((INK, LINE, BLUE, RED, GREY, GREEN, AMBER), 1)
}
_NAMED = get_named_colors_mapping()
for _name, _stand_in in _STAND_INS.items():
    _NAMED[_name] = _stand_in

DAY = {
    "--page": "#ffffff",
    "--soft": "#5c6670",
    "--line": "#d8dde3",
    "--blue": "#2a78d6",
    "--red": "#c0392b",
    "--grey": "#8a97a5",
    "--good": "#1a7f37",
    "--warn": "#8a6100",
}
NIGHT = {
    "--page": "#14181c",
    "--soft": "#9aa5b1",
    "--line": "#363d45",
    "--blue": "#58a0f0",
    "--red": "#e8695c",
    "--good": "#57c274",
    "--warn": "#e0b040",
}
"""The colours of a picture outside a report; within the report its page defines them."""
_AT_NIGHT = "@media (prefers-color-scheme: dark)"

LINES = (BLUE, "#e08b27", "#2f9e62", "#b05bd0", RED, "#12a5b5")
"""Colours of what is drawn side by side."""

WIDE, HALF, NARROW, CELL = 860, 640, 360, 340
"""Pixels of a figure on a desk, of one that shares its row, on a phone, and of one among many."""
ROW, DENSE, FURTHER, FRAME = 24, 18, 14, 64
"""Pixels of a row, of one among many, of each further line of its name, and of the frame around all rows."""
MANY = 24
"""From this number of rows on, rows are closer together and the axis is drawn at both ends."""

# Where DejaVu Sans is missing, Verdana has about its widths, by which matplotlib places words.
STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "perfsweep",
    "font.family": "DejaVu Sans",
    "font.size": 12.0,
    "axes.edgecolor": LINE,
    "axes.labelcolor": INK,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": LINE,
    "text.color": INK,
    "xtick.color": LINE,
    "ytick.color": LINE,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "legend.frameon": False,
    "figure.constrained_layout.use": True,
}

_OURS = re.compile(r'(\bid="|url\(#|href="#)')
_LEFT_OUT = re.compile(r"<metadata>.*?</metadata>|<defs>\s*<style.*?</style>\s*</defs>|<!--.*?-->", re.DOTALL)


def canvas(width: int, height: int) -> tuple[Figure, Axes]:
    """An empty figure with one pair of axes; width and height in pixels."""
    figure = Figure(figsize=(width / 72, height / 72), dpi=72, facecolor="none")
    axes = figure.add_subplot(facecolor="none")
    return figure, axes


def row_figure(names: Sequence[str], width: int) -> tuple[Figure, Axes]:
    """A figure with a row for each name, the first on top, as high as its names need."""
    folded = [fold(name, 24 if width <= NARROW else 32 if width <= HALF else 56) for name in names]
    lines = max((name.count("\n") for name in folded), default=0)
    row = DENSE if len(names) > MANY else ROW
    figure, axes = canvas(width, FRAME + (row + FURTHER * lines) * len(names))
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


def log_axis(axes: Axes, name: str, ticks: Sequence[float] = (1, 2, 5)) -> None:
    """Make an axis logarithmic, with plain numbers at some ticks of each power of ten."""
    axes.set(**{f"{name}scale": "log"})
    axis = axes.xaxis if name == "x" else axes.yaxis
    axis.set_major_locator(LogLocator(subs=ticks))
    axis.set_major_formatter("{x:g}")
    axes.minorticks_off()


def drawn(chart: Callable[[int], Figure], name: str, label: str, desk: int = WIDE) -> Markup:
    """Draw a chart for a desk and for a phone; the page shows one of them.

    Parameters
    ----------
    chart : makes the figure for a width in pixels
    name : of the figure, unlike that of any other of the page
    label : what people hear who cannot see it
    desk : pixels of the figure on a desk
    """
    sizes = (("desk", desk), ("phone", NARROW))
    return Markup("").join(one(chart, f"{name}-{screen}", label, width, screen) for screen, width in sizes)


def one(
    chart: Callable[[int], Figure], name: str, label: str, width: int = CELL, screen: str = "any"
) -> Markup:
    """Draw a chart at one width."""
    inside, height = _inside(chart, name, width)
    tall = " tall" * (height > width)
    start = (
        f'<svg class="chart {screen}{tall}" role="img" aria-label="{escape(label)}"'
        f' viewBox="0 0 {width} {height}" style="max-width: {width}px">'
    )
    return Markup(f"{start}{inside}</svg>")


def alone(chart: Callable[[int], Figure], label: str) -> str:
    """Draw a chart as a file of its own, in the colours of the page by day and by night."""
    inside, height = _inside(chart, "chart", WIDE)
    day, night = ("; ".join(f"{name}: {colour}" for name, colour in each.items()) for each in (DAY, NIGHT))
    style = f"svg {{ {day}; background: var(--page) }} {_AT_NIGHT} {{ svg {{ {night} }} }}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" role="img"'
        f' aria-label="{escape(label)}" viewBox="0 0 {WIDE} {height}" width="{WIDE}" height="{height}">'
        f"<style>{style}</style>{inside}</svg>\n"
    )


PNG_DPI = 180
"""Pixels of an exported picture for 72 of a page: enough for the screen of a lecture room."""


def exported(chart: Callable[[int], Figure], kind: str, width: int = WIDE) -> bytes:
    """Draw a chart as a ``png`` or ``pdf`` file, in the colours of the day on white."""
    written = BytesIO()
    with rc_context({**STYLE, "pdf.fonttype": 42}), _by_day():
        dates = {"CreationDate": None} if kind == "pdf" else {}
        chart(width).savefig(written, format=kind, dpi=PNG_DPI, facecolor=DAY["--page"], metadata=dates)
    return written.getvalue()


@contextmanager
def _by_day() -> Iterator[None]:
    """Let names of colours mean those of the day."""
    for name in _STAND_INS:
        _NAMED[name] = DAY[_variable(name)]
    try:
        yield
    finally:
        for name, stand_in in _STAND_INS.items():
            _NAMED[name] = stand_in


def _variable(colour: str) -> str:
    """The name that a page has for a colour."""
    return f"--{colour.removeprefix('perfsweep:')}"


def _inside(chart: Callable[[int], Figure], name: str, width: int) -> tuple[str, int]:
    """Draw the content of the svg element, in the page's colours by their names; and its height."""
    written = StringIO()
    with rc_context(STYLE):
        figure = chart(width)
        # Not by savefig, which draws every figure twice so as to lay it out.
        FigureCanvasSVG(figure).print_svg(written, metadata={"Date": None})
    whole = re.search(r"<svg[^>]*>(.*)</svg>", written.getvalue(), re.DOTALL)
    assert whole is not None, "matplotlib writes an svg element"
    inside = _OURS.sub(rf"\g<1>{name}-", _LEFT_OUT.sub("", whole[1]))
    for colour, stand_in in _STAND_INS.items():
        inside = inside.replace(stand_in, f"var({_variable(colour)})")
    inside = inside.replace("'DejaVu Sans'", "'DejaVu Sans', Verdana, sans-serif")
    return inside.strip(), round(figure.get_figheight() * 72)
