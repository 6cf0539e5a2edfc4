"""The report as people see it: in a real browser, by day and by night, on a desk and on a phone."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import pytest
from browser import Browser, Page
from measured import with_everything

from perfsweep.pipelines import api

READABLE = 4.5
"""Contrast of text to its ground that the Web Content Accessibility Guidelines 2.1 ask for (section 1.4.3).
"""
HIDDEN = 3.0
"""Of the names of traces that are switched off."""
SCREENS = {"desk": {"width": 1200, "height": 900}, "phone": {"width": 390, "height": 844}}

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


@pytest.fixture(scope="module")
def report(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Page]:
    """The report of a sweep with everything, opened once for each screen and colour scheme."""
    folder, _ = with_everything(tmp_path_factory.mktemp("shown"))
    api.open_sweep(folder.path).report()
    return functools.cache(
        lambda screen="desk", dark=False: browser.open(
            folder.report_file.as_uri(), dark=dark, **SCREENS[screen]
        )
    )


def illegible(page: Page) -> list[str]:
    """Words that stand out from their ground less than they should."""
    found = page.value(CONTRASTS)
    assert len(found) > 3, "there is something to read"
    return [f"{text}: {ratio:.2f}" for ratio, text, faint in found if ratio < (HIDDEN if faint else READABLE)]


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("screen", list(SCREENS))
def test_the_report_draws_itself_alone_and_reads_well(
    report: Callable[..., Page], screen: str, dark: bool
) -> None:
    page = report(screen, dark)
    assert page.said == []
    assert [address for address in page.fetched if not address.startswith("data:")] == [
        page.value("location.href")
    ]
    assert page.value(OVERFLOW) <= 0
    assert illegible(page) == []
    widths = page.value(DRAWN)
    assert len(widths) >= 8, "effects, three interactions, frontier, iterations, rounds, memory"
    assert min(widths) >= 120, "names leave their figure room"


def test_the_page_follows_the_colour_scheme(report: Callable[..., Page]) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    assert report("desk", False).value(ground) != report("desk", True).value(ground)


def test_every_table_and_picture_of_the_sweep_is_there(report: Callable[..., Page]) -> None:
    text = report("desk", False).value("document.body.innerText")
    for title in (
        "one at a time",
        "leave one out",
        "factorial",
        "ladder",
        "Alone and with the others",
        "Frontier of slab",
    ):
        assert title in text
    assert "1 ok, 8 oom" in text
    assert "work=single x sign=wrong" in text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "seen"),
    [
        ("<script>console.error('broken')</script>", lambda page: page.said),
        ("<script>undefined_name()</script>", lambda page: page.said),
        ("<img src='http://127.0.0.1:9/x.png'>", lambda page: page.fetched[1:]),
        ("<div style='width: 1000px'>wide</div>", lambda page: page.value(OVERFLOW) > 0),
        ("<p style='color: #aaa'>faint</p>", illegible),
        ("<svg><text y='9' style='fill: #bbb'>faint</text></svg>", illegible),
        ("<p style='opacity: 0.4'>faint</p>", illegible),
    ],
)
def test_each_check_sees_the_fault_it_looks_for(browser: Browser, tmp_path: Path, fault: str, seen) -> None:
    frame = "<!doctype html><meta name=viewport content='width=device-width'><body style='background: white'>"
    words = "".join(f"<p style='color: black'>{word}</p>" for word in ("one", "two", "three", "four"))
    for name, content in (("sound", ""), ("faulty", fault)):
        file = tmp_path / f"{name}.html"
        file.write_text(f"{frame}{words}{content}")
        page = browser.open(file.as_uri(), **SCREENS["phone"])
        assert bool(seen(page)) is bool(content)
