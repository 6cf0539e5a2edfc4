"""How quantities are put into words."""

from __future__ import annotations

import pytest

from perfsweep.pipelines.units import bounds_text, duration, megabytes_more, percent


@pytest.mark.parametrize(
    ("ratio", "words"),
    [
        (None, ""),
        (0.77, "-23.0 %"),
        (1.0, "+0.0 %"),
        (1.99, "+99.0 %"),
        (0.5, "2x less"),
        (1 / 271, "271x less"),
        (3.2, "3.2x more"),
    ],
)
def test_small_changes_are_percentages_and_large_ones_factors(ratio, words):
    assert percent(ratio) == words


def test_an_interval_takes_the_form_of_its_change_and_reads_from_small_to_large():
    assert bounds_text(0.77, 0.75, 0.79) == "-25.0 .. -21.0"
    assert bounds_text(1 / 250, 1 / 278, 1 / 225) == "225x .. 278x"
    assert bounds_text(3.0, 2.5, 3.5) == "2.5x .. 3.5x"
    assert bounds_text(0.9, None, 1.0) == ""


@pytest.mark.parametrize(
    ("ns", "words"),
    [(0, "0 ns"), (999, "999 ns"), (1e3, "1 us"), (123456, "123 us"), (2.5e6, "2.5 ms"), (1e9, "1 s")],
)
def test_a_time_has_the_largest_unit_that_it_fills(ns: float, words: str) -> None:
    assert duration(ns) == words


def test_memory_is_the_same_under_half_of_the_last_digit() -> None:
    found = [megabytes_more(mb * 2**20) for mb in (0.049, -0.049, 0.051, -3.26)]
    assert found == ["same", "same", "+0.1 MB", "-3.3 MB"]
    assert megabytes_more(None) == ""
