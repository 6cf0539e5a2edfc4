"""How quantities are put into words."""

from __future__ import annotations

import pytest

from perfsweep.pipelines.units import amount, bounds_text, duration, megabytes_more, speed


@pytest.mark.parametrize(
    ("ratio", "words"),
    [
        (None, ""),
        (0.77, "1.30x faster"),
        (1.0, "1.000x"),
        (1.0003, "1.000x"),
        (0.96, "1.042x faster"),
        (1.99, "1.99x slower"),
        (1 / 12.34, "12.3x faster"),
        (1 / 271, "271x faster"),
        (1 / 1808, "1,808x faster"),
    ],
)
def test_times_compare_as_factors_of_speed_with_the_digits_that_they_need(ratio, words):
    assert speed(ratio) == words


def test_other_amounts_are_less_or_more():
    assert (amount(0.5), amount(1.25), amount(None)) == ("2.00x less", "1.25x more", "")


def test_an_interval_has_the_direction_and_the_digits_of_its_factor_and_reads_from_small_to_large():
    assert bounds_text(0.77, 0.75, 0.79) == "1.27 .. 1.33"
    assert bounds_text(0.98, 0.95, 1.01) == "0.990 .. 1.053"
    assert bounds_text(1 / 250, 1 / 278, 1 / 225) == "225 .. 278"
    assert bounds_text(3.0, 2.5, 3.5) == "2.50 .. 3.50"
    assert bounds_text(0.9, None, 1.0) == ""
    assert bounds_text(1.78, 0.0004, 6647.0) == "unknown"


@pytest.mark.parametrize(
    ("ns", "words"),
    [(0, "0 ns"), (999, "999 ns"), (1e3, "1 us"), (123456, "123 us"), (2.5e6, "2.5 ms"), (1e9, "1 s")],
)
def test_a_time_has_the_largest_unit_that_it_fills(ns: float, words: str) -> None:
    assert duration(ns) == words


def test_memory_is_the_same_under_half_of_the_last_digit() -> None:
    found = [megabytes_more(mb * 1e6) for mb in (0.049, -0.049, 0.051, -3.26, 31.2)]
    assert found == ["same", "same", "+0.1 MB", "-3.3 MB", "+31 MB"]
    assert megabytes_more(None) == ""
