"""A deviation in units of its bound, and in words."""

from __future__ import annotations

import math

import pytest

from perfsweep.pipelines.parity.results import Deviation


@pytest.mark.parametrize(
    ("value", "bound", "ratio"),
    [(0.5, 0.25, 2.0), (0.0, 0.25, 0.0), (0.0, 0.0, 0.0), (1e-9, 0.0, math.inf), (math.inf, 0.5, math.inf)],
)
def test_a_deviation_is_told_in_units_of_its_bound(value: float, bound: float, ratio: float) -> None:
    assert Deviation("loss", value, bound, "", True).ratio == ratio


@pytest.mark.parametrize(
    ("deviation", "words"),
    [
        (Deviation("loss", 0.12345, 0.01, "", False), "loss: 0.123 against 0.01"),
        (Deviation("loss", 2e-7, 1e-5, "worst at [3]", True), "loss: 2e-07 against 1e-05 (worst at [3])"),
        (
            Deviation("loss", 0.5, 1.0, "worst at [3]", True, 2),
            "loss: 0.5 against 1 (worst at [3]), 2 entries excused",
        ),
        (Deviation("loss", math.inf, 0.0, "missing in the arm", False), "loss: missing in the arm"),
    ],
)
def test_a_deviation_in_words_has_value_bound_and_place_or_why_there_is_none(
    deviation: Deviation, words: str
) -> None:
    assert str(deviation) == words
