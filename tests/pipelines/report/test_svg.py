"""Figures inside a page and as files of their own: their size, their words, and the page's colours."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from matplotlib.figure import Figure

from perfsweep.pipelines.report.pictures.svg import (
    BLUE,
    CELL,
    DAY,
    INK,
    LINE,
    NARROW,
    NIGHT,
    WIDE,
    alone,
    canvas,
    drawn,
    one,
)

STAND_INS = re.compile(r"#01010[1-7]")


def chart(width: int, height: int = 300) -> Figure:
    figure, axes = canvas(width, height)
    axes.plot([1, 2], [3, 4], color=BLUE, clip_on=True)
    axes.set_title("a & b")
    return figure


def ids(text: str) -> list[str]:
    return re.findall(r'\bid="([^"]+)"', text)


def test_a_page_has_a_figure_for_a_desk_and_one_for_a_phone_with_names_of_their_own() -> None:
    text = drawn(chart, "times", 'times of "a" & <b>')
    desk, phone = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    assert 'class="chart desk" role="img" aria-label="times of &#34;a&#34; &amp; &lt;b&gt;"' in desk
    assert f'viewBox="0 0 {WIDE} 300" style="max-width: {WIDE}px"' in desk
    assert f'viewBox="0 0 {NARROW} 300"' in phone and 'class="chart phone"' in phone
    assert all(name.startswith("times-desk-") for name in ids(desk)) and ids(desk)
    assert all(name.startswith("times-phone-") for name in ids(phone)) and ids(phone)
    used = re.findall(r'(?:url\(#|href="#)([^")]+)', desk)
    assert used and set(used) <= set(ids(desk)), "what a figure refers to stands in it"


def test_a_figure_higher_than_wide_says_so_to_the_page_and_one_among_others_is_narrow() -> None:
    text = one(lambda width: chart(width, width + 1), "a", "a")
    assert f'class="chart any tall" role="img" aria-label="a" viewBox="0 0 {CELL} {CELL + 1}"' in text
    assert 'class="chart any"' in one(lambda width: chart(width, width), "a", "a")


def test_words_stay_words_and_colours_are_those_of_the_page() -> None:
    text = one(chart, "a", "a")
    assert ">a &amp; b</text>" in text and "'DejaVu Sans', Verdana, sans-serif" in text
    assert "var(--blue)" in text and "var(--soft)" in text and "var(--line)" in text
    assert not STAND_INS.search(text)
    assert "#ffffff" not in text, "nothing is white by night"
    assert not re.search(r"<metadata|<style|<!--", text)
    assert text == one(chart, "a", "a"), "equal figures are equal to the byte"


def test_a_file_of_its_own_is_a_whole_picture_with_colours_by_day_and_by_night() -> None:
    text = alone(chart, "a & b", width=500)
    root = ElementTree.fromstring(text)
    assert root.tag == "{http://www.w3.org/2000/svg}svg" and root.attrib["aria-label"] == "a & b"
    size = (root.attrib["width"], root.attrib["height"], root.attrib["viewBox"])
    assert size == ("500", "300", "0 0 500 300")
    day, _, night = text.partition("@media (prefers-color-scheme: dark)")
    assert f"--blue: {DAY['--blue']}" in day and NIGHT["--blue"] not in day
    assert f"--blue: {NIGHT['--blue']}" in night and "background: var(--page)" in day


def test_axes_are_open_at_the_top_and_on_the_right() -> None:
    drawn_axes = []

    def kept(width: int) -> Figure:
        drawn_axes.extend((figure := chart(width)).axes)
        return figure

    one(kept, "a", "a")
    spines = drawn_axes[0].spines
    assert {name: spines[name].get_visible() for name in spines} == {
        "left": True,
        "bottom": True,
        "top": False,
        "right": False,
    }
    assert drawn_axes[0].title.get_color() == INK and spines["left"].get_edgecolor() != LINE
