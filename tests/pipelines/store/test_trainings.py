"""Which arms are trained to a target with which seeds, and when a course tells that it is reached."""

from __future__ import annotations

import math
from typing import Any

import pytest
from planned_sweeps import FAST, NAIVE, arm, effect, manifest, pack, progress, record

from perfsweep.pipelines.store.needed_once import trained_arms, untrained
from perfsweep.pipelines.store.options import Target
from perfsweep.pipelines.store.records import PLACEBO, Effect, Kind, Outcome

C, D = "c" * 16, "d" * 16
ARMS = [arm(one) for one in (NAIVE, FAST, C, D)]
MEASURE = {
    "target": 0.5,
    "target_figure": "loss",
    "target_better": "lower",
    "target_every": 10,
    "target_looks": 1,
    "target_steps": 20,
    "target_seeds": 3,
}


def planned(*effects: Effect, packs: tuple = (pack(NAIVE, FAST, C, D),), **measure: object):
    return manifest(*ARMS, effects=effects, packs=packs, sweep={"measure": {**MEASURE, **measure}})


def training(of: str, seed: int, *values: float, outcome: Outcome = Outcome.OK):
    course = {10 * number: {"loss": value} for number, value in enumerate(values, 1)}
    return record(of, Kind.QUALITY, replicate=seed, course=course, outcome=outcome)


@pytest.mark.parametrize(
    ("effects", "arms"),
    [
        ([effect((FAST, NAIVE)), effect((C, FAST))], (NAIVE, FAST, C)),
        ([effect((D, C))], (NAIVE, C, D)),
        ([effect((FAST, NAIVE), (D, C))], (NAIVE,)),
        ([effect((FAST, NAIVE), design=PLACEBO)], (NAIVE,)),
        ([effect((FAST, NAIVE), contrast={FAST: 1.0, NAIVE: -1.0})], (NAIVE,)),
    ],
    ids=["bases first", "next to the reference", "no mean of pairs", "no placebo", "no contrast"],
)
def test_arms_of_effects_between_two_arms_are_trained(effects: list, arms: tuple) -> None:
    assert trained_arms(planned(*effects)) == arms


def test_all_arms_of_a_seed_are_trained_together() -> None:
    plan = planned(effect((FAST, NAIVE)))
    every = [(NAIVE, 0), (FAST, 0), (NAIVE, 1), (FAST, 1), (NAIVE, 2), (FAST, 2)]
    assert untrained(plan, progress(), plan.packs[0]) == every


def test_an_arm_of_several_packs_is_trained_by_the_first() -> None:
    packs = (pack(NAIVE, FAST, id="p000"), pack(NAIVE, C, id="p001"))
    plan = planned(effect((FAST, NAIVE)), effect((C, NAIVE)), packs=packs)
    assert untrained(plan, progress(), packs[0])[:2] == [(NAIVE, 0), (FAST, 0)]
    assert untrained(plan, progress(), packs[1]) == [(C, 0), (C, 1), (C, 2)]


@pytest.mark.parametrize(
    ("found", "retry", "missing"),
    [
        (training(FAST, 0, 0.9, 0.4), set(), False),
        (training(FAST, 0, 0.9), set(), True),
        (training(FAST, 0, 0.9, outcome=Outcome.OOM), {Outcome.FAILED}, False),
        (training(FAST, 0, 0.9, outcome=Outcome.OOM), {Outcome.OOM}, True),
    ],
    ids=["done", "followed for another target", "of another outcome", "to retry"],
)
def test_a_training_is_missing_until_its_course_decides(found, retry: set, missing: bool) -> None:
    plan = planned(effect((FAST, NAIVE)))
    left = untrained(plan, progress(found), plan.packs[0], retry)
    assert ((FAST, 0) in left) is missing
    assert (NAIVE, 0) in left


def target(**own: Any) -> Target:
    given = {"figure": "test_loss", "value": 0.5, "rising": False, "every": 10, "looks": 1, "steps": 40}
    return Target(**{**given, **own})


def course(*values: float | None, every: int = 10) -> dict[int, dict[str, float]]:
    return {
        every * number: {} if value is None else {"test_loss": value}
        for number, value in enumerate(values, 1)
    }


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
