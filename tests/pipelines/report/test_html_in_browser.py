"""The report in a real browser: readable by day and night, nothing lost at any width, nor in print."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import browser as browsing
import pytest
from browser import Browser, Page
from measured import with_everything, with_many_arms

from perfsweep.pipelines import api
from perfsweep.pipelines.store.records import SweepFolder

READABLE = 4.5
"""Contrast of text to its ground that the Web Content Accessibility Guidelines 2.1 ask for (section 1.4.3).
"""
HIDDEN = 3.0
"""Of the names of traces that are switched off."""
MEDIA = {
    "1600 px": {"width": 1600},
    "1200 px": {"width": 1200},
    "800 px": {"width": 800},
    "400 px": {"width": 400},
    "A4": {"width": 703, "media": "print"},
}
"""Screens, and what margins of 12 mm leave of a sheet, in pixels of CSS."""
WHOLE = ("1600 px", "1200 px", "A4")
"""Where every column is seen without scrolling."""
MOST_BYTES = 1_500_000
SWEEPS: dict[str, Callable[[Path], tuple[SweepFolder, Any]]] = {
    "everything": with_everything,
    "sixty arms": with_many_arms,
}

CONTRASTS = """
(() => {
  const pixel = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const over = (ground, colour, share) => {
    pixel.globalAlpha = 1; pixel.fillStyle = ground; pixel.fillRect(0, 0, 1, 1);
    pixel.globalAlpha = share; pixel.fillStyle = colour; pixel.fillRect(0, 0, 1, 1);
    return [...pixel.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const light = rgb => {
    const [r, g, b] = rgb.map(v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const css = rgb => `rgb(${rgb.join(',')})`;
  const found = [];
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const text = texts.currentNode.textContent.trim(), own = texts.currentNode.parentElement;
    if (!text || !own.getClientRects().length || own.closest('script, style')) continue;
    const line = []; for (let one = own; one; one = one.parentElement) line.push(one);
    let ground = 'rgb(255,255,255)', share = 1;
    for (const one of line.slice().reverse()) {
      const style = getComputedStyle(one); share *= +style.opacity;
      ground = css(over(ground, style.backgroundColor, 1));
    }
    const style = getComputedStyle(own), ink = own instanceof SVGElement ? style.fill : style.color;
    const [a, b] = [light(over(ground, ink, share)), light(over(ground, ground, 1))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    found.push([ratio, text.slice(0, 40), share < 1]);
  }
  return found.sort((a, b) => a[0] - b[0]);
})()
"""
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
DRAWN = """
[...document.querySelectorAll('svg.chart')].filter(one => one.getClientRects().length)
  .map(one => one.querySelector('[id*="-axes_"] path').getBoundingClientRect().width)
"""
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


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if missing := browsing.missing():
        if "browser" in os.environ.get("PERFSWEEP_NO_SKIP", ""):
            pytest.fail(missing)
        pytest.skip(missing)
    with browsing.running(tmp_path_factory.mktemp("browser")) as started:
        yield started


@pytest.fixture(scope="module")
def shown(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Page]:
    """The report of a sweep with all it can unfold, opened once for each medium and colour scheme."""

    @functools.cache
    def written(sweep: str) -> Path:
        folder, _ = SWEEPS[sweep](tmp_path_factory.mktemp("shown"))
        return Path(api.open_sweep(folder.path).report())

    @functools.cache
    def show(medium: str, dark: bool = False, sweep: str = "everything") -> Page:
        file = written(sweep)
        assert file.stat().st_size < MOST_BYTES
        page = browser.open(file.as_uri(), dark=dark, **MEDIA[medium])
        page.value(UNFOLD)
        return page

    return show


def illegible(page: Page) -> list[str]:
    """Words whose contrast to their ground is too low."""
    found = page.value(CONTRASTS)
    assert len(found) > 3, "there is something to read"
    return [f"{text}: {ratio:.2f}" for ratio, text, faint in found if ratio < (HIDDEN if faint else READABLE)]


@pytest.mark.parametrize(("medium", "dark"), [("1200 px", False), ("400 px", True)])
def test_the_report_draws_itself_alone_and_reads_well(
    shown: Callable[..., Page], medium: str, dark: bool
) -> None:
    page = shown(medium, dark)
    assert page.said == []
    assert [address for address in page.fetched if not address.startswith("data:")] == [
        page.value("location.href")
    ]
    assert illegible(page) == []
    widths = page.value(DRAWN)
    assert len(widths) >= 6, "effects, three interactions, frontier, iterations"
    assert min(widths) >= 120, "names leave their figure room"


def test_every_table_and_picture_of_the_sweep_is_there(shown: Callable[..., Page]) -> None:
    text = shown("1200 px").value("document.body.innerText")
    for title in ("one at a time", "ladder", "Alone and with the others", "Frontier of slab"):
        assert title in text
    assert "1 ok, 8 oom" in text
    assert "work=single x sign=wrong" in text


@pytest.mark.slow
@pytest.mark.parametrize("sweep", SWEEPS)
@pytest.mark.parametrize("medium", MEDIA)
def test_nothing_is_lost_on_any_medium_and_all_has_a_name(
    shown: Callable[..., Page], medium: str, sweep: str
) -> None:
    page = shown(medium, sweep=sweep)
    assert page.value("document.querySelectorAll('table').length") > 3, "there is something to lose"
    assert medium not in WHOLE or page.value(TOO_WIDE) == []
    assert medium == "A4" or (page.value(OVERFLOW) <= 0 and page.value(UNREACHABLE) == [])
    assert page.value(UNNAMED) == 0
    assert page.value(CROWDED) == [], "words in figures are apart and inside"


@pytest.mark.slow
def test_a_wide_table_scrolls_by_the_keyboard(shown: Callable[..., Page]) -> None:
    page = shown("400 px")
    page.value("document.querySelector('.wide').focus()")
    page.press("ArrowRight", 39)
    page.until("document.querySelector('.wide').scrollLeft > 0")
    assert page.value(OVERFLOW) <= 0, "the table moves, and not the page"


@pytest.mark.slow
def test_the_page_follows_the_colour_scheme_and_paper_is_white(shown: Callable[..., Page]) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    assert shown("1200 px").value(ground) != shown("400 px", True).value(ground)
    assert shown("A4", True).value(ground) == "rgb(255, 255, 255)"
