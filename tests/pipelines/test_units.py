"""How quantities are put into words."""

from __future__ import annotations

import pytest

from pipelines.units import bounds_text, percent


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
