"""How quantities are put into words."""

from __future__ import annotations

import pytest

from perfsweep.pipelines.units import amount, bounds_text, duration, megabytes_more, speed


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (map(speed, (None, 0.77, 1.0, 1.0003)), ["", "1.30x faster", "1.000x", "1.000x"]),
        (map(speed, (0.96, 1.99, 1 / 12.34)), ["1.042x faster", "1.99x slower", "12.3x faster"]),
        (map(speed, (1 / 271, 1 / 1808)), ["271x faster", "1,808x faster"]),
        (map(amount, (0.5, 1.25, None)), ["2.00x less", "1.25x more", ""]),
        (map(bounds_text, (0.77, 3.0), (0.75, 2.5), (0.79, 3.5)), ["1.27 .. 1.33", "2.50 .. 3.50"]),
        (
            map(bounds_text, (0.98, 1 / 250), (0.95, 1 / 278), (1.01, 1 / 225)),
            ["0.990 .. 1.053", "225 .. 278"],
        ),
        (map(bounds_text, (0.9, 1.78), (None, 0.0004), (1.0, 6647.0)), ["", "unknown"]),
        (map(duration, (0, 999, 1e3, 123456)), ["0 ns", "999 ns", "1 us", "123 us"]),
        (map(duration, (2.5e6, 1e9)), ["2.5 ms", "1 s"]),
        (map(megabytes_more, (4.9e4, -4.9e4, 5.1e4)), ["same", "same", "+0.1 MB"]),
        (map(megabytes_more, (-3.26e6, 31.2e6, None)), ["-3.3 MB", "+31 MB", ""]),
    ],
    ids=lambda value: " or ".join(value) if isinstance(value, list) else "",
)
def test_a_quantity_has_the_digits_and_the_unit_that_it_needs(said, words: list[str]) -> None:
    assert list(said) == words
