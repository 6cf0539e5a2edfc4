"""When a training has reached its target, and when a course tells that it has or never will."""

from __future__ import annotations

import math
from typing import Any

import pytest

from perfsweep.pipelines.store.target import Target


def target(**own: Any) -> Target:
    given = {"figure": "test_loss", "value": 0.5, "rising": False, "every": 10, "looks": 1, "steps": 40}
    return Target(**{**given, **own})


def course(*values: float | None, every: int = 10) -> dict[int, dict[str, float]]:
    return {
        every * number: {} if value is None else {"test_loss": value}
        for number, value in enumerate(values, 1)
    }


@pytest.mark.parametrize(("steps", "last"), [(49, 40), (50, 50), (3, 10)])
def test_the_last_look_is_within_the_steps_and_there_is_one(steps: int, last: int) -> None:
    assert target(steps=steps).last_look == last


@pytest.mark.parametrize(
    ("own", "values", "steps"),
    [
        ({}, (0.9, 0.5), 20),
        ({}, (0.9, 0.51), None),
        ({"rising": True}, (0.1, 0.5, 0.4), 20),
        ({"looks": 2}, (0.9, 0.2, 0.6), 30),
        ({"looks": 2}, (0.1,), None),
        ({}, (None, 0.4), 20),
        ({}, (math.nan, 0.6), None),
        ({"looks": 2}, (None, 0.1, 0.1), 30),
    ],
    ids=str,
)
def test_it_is_reached_by_the_mean_of_the_last_looks(own: dict, values: tuple, steps: int | None) -> None:
    assert target(**own).steps_in(course(*values)) == steps


def test_looks_count_in_their_order_whatever_order_they_were_noted_in() -> None:
    looks = course(0.9, 0.2, 0.8)
    assert target().steps_in({at: looks[at] for at in (30, 10, 20)}) == 20


@pytest.mark.parametrize(
    ("looks", "decided"),
    [
        (course(0.9, 0.4), True),
        (course(0.9, 0.8, 0.7), False),
        (course(0.9, 0.8, 0.7, 0.6), True),
        ({20: {"test_loss": 0.4}}, False),
        (course(0.9, 0.6, 0.4, every=5), False),
        (course(None, 0.4), False),
    ],
    ids=["reached", "missing looks", "all looks", "a look was left out", "other looks", "without the figure"],
)
def test_a_course_decides_if_it_has_every_look_up_to_the_answer(looks: dict, decided: bool) -> None:
    assert target().decided_by(looks) is decided
