"""The picture of a trade-off: where names find room, what they say, and how axes are labelled."""

from __future__ import annotations

import numpy as np
import pytest

from perfsweep.pipelines.report.pictures import svg
from perfsweep.pipelines.report.pictures.trade_off import NAMED, Box, Choice, TradeOff, chart
from perfsweep.pipelines.units import MB

BOX = Box(left=10, right=20, bottom=100, top=110)


@pytest.mark.parametrize(
    ("other", "meets"),
    [
        (Box(15, 25, 105, 115), True),
        (Box(20, 30, 100, 110), False),  # side by side
        (Box(0, 10, 100, 110), False),
        (Box(10, 20, 110, 120), False),  # one above the other
        (Box(10, 20, 90, 100), False),
        (Box(0, 30, 90, 120), True),
        (Box(12, 13, 104, 105), True),
        (Box(15, 25, 50, 60), False),
    ],
)
def test_two_names_meet_where_they_would_lie_over_each_other(other: Box, meets: bool) -> None:
    assert BOX.meets(other) is meets and other.meets(BOX) is meets


def test_points_under_a_name_are_counted() -> None:
    points = np.array([[15, 105], [11, 101], [10, 105], [15, 110], [5, 105], [15, 95], [25, 105]])
    assert BOX.count(points) == 2


def drawn(*choices: Choice, of: str = "memory", width: int = svg.WIDE):
    (axes,) = chart(TradeOff(of, choices), width).axes
    return axes


def at(name: str, us: float, value: float, **fields: object) -> Choice:
    return Choice(name, us * 1e3, value, **fields)  # type: ignore[arg-type]


TWO = (at("a", 10, 6 * MB), at("b", 20, 3 * MB))


@pytest.mark.parametrize(("of", "y"), [("memory", "peak memory, MB"), ("energy", "J per unit")])
def test_axes_say_what_is_weighed(of: str, y: str) -> None:
    axes = drawn(*TWO, of=of)
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("microseconds per unit", y)


def groups(axes) -> list[list[tuple[float, float]]]:
    """Points of the four groups: beaten, without a time, with other results, best."""
    return [[tuple(map(float, point)) for point in one.get_offsets()] for one in axes.collections]


def test_the_line_joins_what_nobody_would_pass_by_and_each_kind_has_a_mark_of_its_own() -> None:
    axes = drawn(
        *TWO,
        at("beaten", 30, 9 * MB, dominated=True),
        at("untimed", 12, 5 * MB, timed=False),
        at("different", 5, 1 * MB, same=False),
        at("different and untimed", 6, 2 * MB, same=False, timed=False),
    )
    assert groups(axes) == [[(30, 9)], [(12, 5)], [(5, 1), (6, 2)], [(10, 6), (20, 3)]]
    (line,) = axes.lines
    assert [list(line.get_xdata()), list(line.get_ydata())] == [[10, 20], [6, 3]]
    assert {text.get_text() for text in axes.texts} == {"a", "b", "untimed"}


def test_energy_is_drawn_as_it_is_and_what_a_million_costs_stands_below_the_name() -> None:
    axes = drawn(at("a", 10, 6.0, cost=7.5), at("b", 20, 3.0, cost=8.0), of="energy")
    assert groups(axes)[3] == [(10, 6), (20, 3)]
    assert {text.get_text().split("\n")[1] for text in axes.texts} == {"7.5 per million", "8 per million"}


LONG = "precision_schedule=warm_bf16"


@pytest.mark.parametrize(("width", "lines"), [(svg.NARROW, 3), (svg.CELL, 3), (svg.WIDE, 1)])
def test_long_names_fold_where_the_picture_is_narrow(width: int, lines: int) -> None:
    (text,) = drawn(at(LONG, 10, 6 * MB), width=width).texts
    assert "".join(text.get_text().split()) == LONG
    assert len(text.get_text().split("\n")) == lines


def test_names_go_over_and_under_their_points_by_turns() -> None:
    axes = drawn(at("a", 10, 40 * MB), at("b", 25, 30 * MB), at("c", 40, 20 * MB))
    assert {text.get_text(): text.get_verticalalignment() for text in axes.texts} == {
        "a": "bottom",
        "b": "top",
        "c": "bottom",
    }


def test_no_more_arms_are_named_than_can_be_read() -> None:
    axes = drawn(*(at(str(n), 10 + n, (40 - n) * MB) for n in range(NAMED + 4)))
    assert {text.get_text() for text in axes.texts} <= {str(n) for n in range(NAMED)}


@pytest.mark.parametrize(("largest", "scale"), [(50, "linear"), (51, "log")])
def test_from_five_times_the_smallest_on_an_axis_is_logarithmic(largest: float, scale: str) -> None:
    axes = drawn(at("a", 10, largest * MB), at("b", largest, 10 * MB))
    assert (axes.get_xscale(), axes.get_yscale()) == (scale, scale)
