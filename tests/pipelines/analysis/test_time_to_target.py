"""Time to quality: from courses of trainings and the time of a step to one ratio, or to why there is none."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from measured import change, compared, cost, simulated, spec_of, write

from perfsweep.pipelines.analysis.compare import Comparison
from perfsweep.pipelines.config.types import DesignConfig
from perfsweep.pipelines.statistics.verdicts import ReasonCode, Verdict
from perfsweep.pipelines.store.records import Kind, Manifest, SweepFolder, TrialSpec, write_evidence
from perfsweep.workloads.api import Evidence

SEEDS, EVERY, CAP = 10, 5, 400
STEPS = [95, 120, 105, 160, 140, 110, 100, 125, 150, 130]


@pytest.fixture
def sweep(command: Callable) -> Callable[..., tuple[SweepFolder, Manifest]]:
    """A sweep of an arm that takes half the time for a step, with a target of 0.9."""

    def make(**measure: Any) -> tuple[SweepFolder, Manifest]:
        options = {
            "rounds": 8,
            "target": 0.9,
            "target_figure": "accuracy",
            "target_better": "higher",
            "target_every": EVERY,
            "target_steps": CAP,
            "target_seeds": SEEDS,
            **measure,
        }
        planned = command(DesignConfig("one_at_a_time", levels={"work": ["single"]}), measure=options)
        return simulated(planned, cost)

    return make


def course(steps: float, every: int = EVERY, cap: int = CAP) -> dict[int, dict[str, float]]:
    """Looks until an accuracy of 0.9, which it has after so many steps, or all of them."""
    last = cap if math.isinf(steps) else math.ceil(steps / every) * every
    return {at: {"accuracy": 0.95 if at >= steps else 0.5} for at in range(every, last + 1, every)}


def train(folder: SweepFolder, manifest: Manifest, arm: str, steps: Sequence[float], **fields: Any) -> None:
    """Write one training of an arm for each seed."""
    for seed, one in enumerate(steps):
        write(folder, training(manifest, arm, seed), replicate=seed, **{"course": course(one), **fields})


def training(manifest: Manifest, arm: str, seed: int) -> TrialSpec:
    return replace(spec_of(manifest, arm, "p000", None, Kind.QUALITY), replicate=seed)


def with_steps(
    made: tuple[SweepFolder, Manifest], of_arm: Sequence[float], of_base: Sequence[float]
) -> Comparison:
    folder, manifest = made
    ((arm, base),) = manifest.effects[0].pairs
    train(folder, manifest, arm, of_arm)
    train(folder, manifest, base, of_base)
    return compared(folder, manifest)


def results(comparison: Comparison) -> Mapping[str, Any]:
    return comparison.effects[0].quantities


def test_half_the_time_of_a_step_and_a_fifth_more_steps_are_six_tenths_of_the_time(sweep) -> None:
    rng = np.random.default_rng(0)
    longer = [one * 1.2 * math.exp(0.03 * rng.standard_normal()) for one in STEPS]
    found = results(with_steps(sweep(), longer, STEPS))
    steps, time = found["target_steps"], found["target"]
    assert steps.ratio == pytest.approx(1.2, rel=0.05) and steps.low < steps.ratio < steps.high
    assert time.ratio == pytest.approx(0.6, rel=0.05) and time.p < 1e-3
    assert (
        math.log(time.high / time.low) >= math.log(steps.high / steps.low) * 0.95
    )  # both scatters are in it
    assert "p" in time.text and "x less" in time.text.partition("\n")[0]


def test_with_more_than_a_fifth_missed_there_is_no_ratio(sweep) -> None:
    comparison = with_steps(sweep(), [*STEPS[:7], *[math.inf] * 3], STEPS)
    found = results(comparison)["target"]
    assert found.ratio is None and found.text == "missed in 3 of 10"
    assert any(
        "missed in 3 of 10 runs: with more than a fifth there is no ratio" in n for n in comparison.notes
    )
    assert comparison.effects[0].ratio is not None


def test_a_target_that_nobody_reaches_is_one_sentence(sweep) -> None:
    comparison = with_steps(sweep(), [math.inf] * SEEDS, [math.inf] * SEEDS)
    lines = [note for note in comparison.notes if note.startswith("to target")]
    assert lines == [
        "to target: no training reached accuracy >= 0.9 within 400 iterations; use a nearer measure.target,"
        " or more measure.target_steps"
    ]


def disturb(folder: SweepFolder, manifest: Manifest) -> None:
    for record in folder.path.glob("trials/*/*-r*/record.json"):
        change(record, disturbed=["GPU-1: power brake"])


def compute_something_else(folder: SweepFolder, manifest: Manifest) -> None:
    ((arm, _),) = manifest.effects[0].pairs
    evidence = spec_of(manifest, arm, "p000", None, Kind.EVIDENCE)
    write_evidence(folder.trial_dir(evidence), Evidence({"trace": 2 * np.ones(4)}, {"count": 4.0}))


Damage = Callable[[SweepFolder, Manifest], None]


def held_back(made: tuple[SweepFolder, Manifest], damage: Damage) -> Comparison:
    """A sweep whose trainings differ clearly, in which the verdict on the time is withheld."""
    damage(*made)
    return with_steps(made, [one * 2 for one in STEPS], STEPS)


def test_nothing_is_said_of_the_time_to_the_target_where_the_verdict_is_held_back(sweep) -> None:
    comparison = held_back(sweep(), disturb)
    (effect,) = comparison.effects
    assert effect.verdict is Verdict.HELD_BACK
    time, steps = effect.quantities["target"], effect.quantities["target_steps"]
    assert (time.ratio, time.low, time.high, time.p, time.text) == (None, None, None, None, "too noisy")
    assert time.value is not None  # an arm's own figure claims nothing of another
    assert steps.ratio == pytest.approx(2, rel=0.05)  # what is counted is not disturbed
    why = "not compared: too noisy, every trial of its arms was disturbed"
    assert f"to target: {why}" in comparison.notes


@pytest.mark.slow
@pytest.mark.parametrize(
    ("damage", "measure", "code", "word"),
    [
        (compute_something_else, {}, ReasonCode.RESULTS_DIFFER, "different"),
        (lambda *made: None, {"look": True}, ReasonCode.ONLY_A_LOOK, "only a look"),
    ],
    ids=["other results", "a mere look"],
)
def test_neither_time_nor_steps_are_compared_where_nothing_is_called(
    sweep, damage: Damage, measure: dict[str, Any], code: ReasonCode, word: str
) -> None:
    comparison = held_back(sweep(**measure), damage)
    (effect,) = comparison.effects
    assert effect.code is code
    for key, heading in (("target", "to target"), ("target_steps", "steps to target")):
        found = effect.quantities[key]
        assert (found.ratio, found.p, found.text) == (None, None, word)
        assert any(note.startswith(f"{heading}: not compared: {word}, ") for note in comparison.notes)


def test_trainings_that_are_missing_are_told(sweep) -> None:
    folder, manifest = sweep()
    ((arm, base),) = manifest.effects[0].pairs
    train(folder, manifest, base, STEPS)
    train(folder, manifest, arm, STEPS[:4])
    notes = compared(folder, manifest).notes
    assert any("4 of 10 trainings to the target are there" in note for note in notes)
