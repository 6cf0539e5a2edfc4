"""Scores of answers, and how sure they are."""

from __future__ import annotations

import math

import pytest

from perfsweep.workloads.latentwire.scores import Interval, bootstrap, exact_match, f1, normalised, resolvable


@pytest.mark.parametrize(
    ("text", "expected"),
    [("The  U.S.A.!", "usa"), ("an apple a day", "apple day"), ("Another theme", "another theme"), ("a", "")],
)
def test_case_punctuation_articles_and_blanks_do_not_count(text: str, expected: str) -> None:
    assert normalised(text) == expected


@pytest.mark.parametrize(
    ("prediction", "answers", "expected"),
    [
        ("a b c", ["x"], 0.0),
        ("w x y", ["x y"], 2 * (2 / 3) / (2 / 3 + 1)),
        ("x x", ["x y y"], 2 * 0.5 * (1 / 3) / (0.5 + 1 / 3)),
        ("", ["x"], 0.0),
        ("x", ["", "y"], 0.0),
        ("the", [""], 1.0),
        ("x y", ["x", "y x"], 1.0),
    ],
)
def test_the_best_overlap_of_words_counts(prediction: str, answers: list[str], expected: float) -> None:
    assert f1(prediction, answers) == pytest.approx(expected)
    assert exact_match(prediction, answers) == float(normalised(prediction) in answers)


def test_an_interval_leaves_a_fortieth_on_each_side() -> None:
    found = bootstrap([0.0, 1.0], draws=4000)  # means are 0, 1/2 or 1, a quarter, a half and a quarter
    assert (found.mean, found.low, found.high) == (0.5, 0.0, 1.0)
    ones = bootstrap([0.0] * 50 + [1.0] * 50, draws=4000)
    assert (ones.low, ones.high) == pytest.approx((0.5 - 1.96 * 0.05, 0.5 + 1.96 * 0.05), abs=0.011)
    assert bootstrap([0.0, 1.0, 0.3], seed=1) == bootstrap([0.0, 1.0, 0.3], seed=1)
    assert str(Interval(0.5, 0.25, 0.75)) == "0.500 [0.250, 0.750]"


@pytest.mark.parametrize(
    ("values", "spread"),
    [
        ([0.3], 0.5),
        ([0.5, 0.5], 0.5),
        ([0.0, 4.0], 2 * math.sqrt(2)),
        ([0.0, 1.0] * 50, 0.5 * math.sqrt(100 / 99)),
    ],
)
def test_what_can_be_resolved_shrinks_with_the_root_of_the_examples(
    values: list[float], spread: float
) -> None:
    assert resolvable(values) == pytest.approx(2.8 * spread * math.sqrt(2 / len(values)))
