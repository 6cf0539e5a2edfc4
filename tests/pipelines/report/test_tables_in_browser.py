"""Tables and figures of the report as Chromium lays them out: nothing lost at any width, nor in print."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from browser import Browser, Page
from measured import with_everything, with_many_arms

from perfsweep.pipelines import api
from perfsweep.pipelines.store.records import SweepFolder

pytestmark = pytest.mark.slow

MOST_BYTES = 1_500_000
SCREENS = {f"{width} px": {"width": width} for width in (1600, 1200, 800, 400)}
PAPER = {"A4 landscape": {"width": 1032, "media": "print"}, "A4 portrait": {"width": 703, "media": "print"}}
"""What margins of 12 mm leave of the sheet, in pixels of CSS."""
WHOLE = ("1600 px", "1200 px", *PAPER)
"""Where every column stands without scrolling."""
SWEEPS: dict[str, Callable[[Path], tuple[SweepFolder, Any]]] = {
    "everything": with_everything,
    "sixty arms": with_many_arms,
}

UNFOLD = "document.querySelectorAll('details').forEach(one => one.open = true)"
TOO_WIDE = """
[...document.querySelectorAll('table')].map(table => {
  const region = table.parentElement.getBoundingClientRect();
  const room = Math.min(region.right, document.documentElement.clientWidth);
  const cells = [...table.querySelectorAll('th, td')];
  const wide = cell => Math.max(cell.offsetWidth, cell.scrollWidth);
  const ends = cells.map(cell => cell.getBoundingClientRect().left + wide(cell));
  return [table.caption.textContent, Math.max(table.scrollWidth - room, ...ends.map(end => end - room))];
}).filter(([caption, over]) => over > 1)
"""
UNREACHABLE = """
[...document.querySelectorAll('table')].filter(table => {
  const region = table.parentElement;
  const scrolls = getComputedStyle(region).overflowX == 'auto' && region.tabIndex == 0;
  return table.scrollWidth > region.clientWidth + 1 && !(scrolls && region.getAttribute('aria-label'));
}).map(table => table.caption.textContent)
"""
OFF_PAGE = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
UNNAMED = """
[...document.querySelectorAll('table')].filter(table =>
  !table.caption?.textContent.trim()
  || table.parentElement.getAttribute('role') != 'region'
  || [...table.querySelectorAll('thead th')].some(one => one.scope != 'col')
  || [...table.tBodies[0].rows].some(row => !['row', 'rowgroup'].includes(row.cells[0].scope))
).length + [...document.querySelectorAll('figure')].filter(figure =>
  !figure.querySelector('figcaption')?.textContent.trim()
  || [...figure.querySelectorAll('svg')].some(one => one.getAttribute('role') != 'img' || !one.ariaLabel)
).length
"""
CROWDED = """
[...document.querySelectorAll('svg.chart')].filter(one => one.getClientRects().length).flatMap(chart => {
  const frame = chart.getBoundingClientRect();
  const texts = [...chart.querySelectorAll('text')];
  const words = texts.map(one => [one.textContent, one.getBoundingClientRect()]);
  const outside = words.filter(([, box]) => box.left < frame.left - 1 || box.right > frame.right + 1
    || box.top < frame.top - 1 || box.bottom > frame.bottom + 1).map(([text]) => `outside: ${text}`);
  const small = words.filter(([, box]) => box.height < 9).map(([text]) => `small: ${text}`);
  const over = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1
    && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 4;
  const hidden = words.flatMap(([text, box], place) => words.slice(place + 1)
    .filter(([, other]) => over(box, other)).map(([other]) => `${text} over ${other}`));
  return [...outside, ...small, ...hidden];
})
"""


@pytest.fixture(scope="module", params=list(SWEEPS))
def report(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, _ = SWEEPS[request.param](tmp_path_factory.mktemp("shown"))
    return Path(api.open_sweep(folder.path).report())


@pytest.fixture(scope="module")
def shown(browser: Browser, report: Path) -> Callable[..., Page]:
    """The report with all it can unfold, at a width or on a sheet."""

    @functools.cache
    def show(medium: str, dark: bool = False) -> Page:
        page = browser.open(report.as_uri(), dark=dark, **{**SCREENS, **PAPER}[medium])
        page.value(UNFOLD)
        return page

    return show


def test_the_report_is_small(report: Path) -> None:
    assert report.stat().st_size < MOST_BYTES


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("medium", WHOLE)
def test_no_column_of_a_table_is_lost(shown: Callable[..., Page], medium: str, dark: bool) -> None:
    assert shown(medium, dark).value(TOO_WIDE) == []


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("medium", SCREENS)
def test_what_is_wider_than_the_screen_scrolls_by_itself(
    shown: Callable[..., Page], medium: str, dark: bool
) -> None:
    page = shown(medium, dark)
    assert page.value(OFF_PAGE) <= 0
    assert page.value(UNREACHABLE) == []


def test_a_wide_table_scrolls_by_the_keyboard(shown: Callable[..., Page]) -> None:
    page = shown("400 px")
    page.value("document.querySelector('.wide').focus()")
    page.press("ArrowRight", 39)
    page.until("document.querySelector('.wide').scrollLeft > 0")
    assert page.value(OFF_PAGE) <= 0, "the table moves, and not the page"


def test_tables_and_figures_have_names_and_headings_a_direction(shown: Callable[..., Page]) -> None:
    assert shown("1200 px").value(UNNAMED) == 0


@pytest.mark.parametrize("medium", [*SCREENS, *PAPER])
def test_words_in_figures_stand_apart_and_inside(shown: Callable[..., Page], medium: str) -> None:
    assert shown(medium).value(CROWDED) == []


def test_paper_is_white_whatever_the_screen(shown: Callable[..., Page]) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    assert shown("A4 landscape", True).value(ground) == "rgb(255, 255, 255)"


ROWS = "<thead><tr><th scope=col>a<tbody><tr><th scope=row>b"
CELLS = "<td style='min-width: 300px'>x" * 6
REGION = "<div style='overflow-x: auto' role=region tabindex=0 aria-label=t>"


@pytest.mark.parametrize(
    ("fault", "check"),
    [
        (f"{REGION}<table><caption>t</caption>{ROWS}{CELLS}</table></div>", TOO_WIDE),
        (f"<div style='overflow: hidden'><table><caption>t</caption>{ROWS}{CELLS}</table></div>", TOO_WIDE),
        (
            f"<div style='overflow: hidden'><table><caption>t</caption>{ROWS}{CELLS}</table></div>",
            UNREACHABLE,
        ),
        (f"<div><table><caption>t</caption>{ROWS}</table></div>", UNNAMED),
        (f"{REGION}<table><caption></caption>{ROWS}</table></div>", UNNAMED),
        ("<figure><svg class=chart role=img></svg><figcaption>f</figcaption></figure>", UNNAMED),
        ("<svg class=chart><text y=20>one</text><text y=22 x=5>two</text></svg>", CROWDED),
        ("<svg class=chart style='overflow: visible'><text y=20 x=290>outside</text></svg>", CROWDED),
        ("<svg class=chart><text y=20 style='font-size: 5px'>small</text></svg>", CROWDED),
    ],
)
def test_each_measure_sees_the_fault_it_looks_for(
    browser: Browser, tmp_path: Path, fault: str, check: str
) -> None:
    sound = (
        f"{REGION}<table><caption>t</caption>{ROWS}</table></div><figure><svg class=chart role=img"
        " aria-label=f><text y=20>one</text><text y=60>two</text></svg><figcaption>f</figcaption></figure>"
    )
    for name, content in (("sound", sound), ("faulty", fault)):
        file = tmp_path / f"{name}.html"
        file.write_text(f"<!doctype html>{content}")
        found = browser.open(file.as_uri(), width=1200).value(check)
        assert bool(found) is (name == "faulty"), found
