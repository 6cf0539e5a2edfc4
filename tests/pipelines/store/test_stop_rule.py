"""When a pack has enough rounds: a rule on precision or budget, decided by the records alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from perfsweep.pipelines.config.types import DesignConfig
from perfsweep.pipelines.plan import plan
from perfsweep.pipelines.store.progress import Progress, StoredTrial
from perfsweep.pipelines.store.records import Kind, Manifest, Outcome, TrialRecord
from perfsweep.pipelines.store.stop_rule import StopRule
from perfsweep.workloads.api import Device

Measured = Callable[..., tuple[Manifest, Progress]]


@pytest.fixture
def measured(command) -> Measured:
    """A sweep of two arms with rounds of given noise already measured; every trial took a second."""

    def make(
        there: int, noise: float = 0.0, disturbed: tuple[int, ...] = (), **changes
    ) -> tuple[Manifest, Progress]:
        toy = command(
            DesignConfig("one_at_a_time", levels={"work": ["single"]}), measure={"rounds_max": 30, **changes}
        )
        manifest = plan.make_plan(toy, Device())
        measure = manifest.sweep.measure
        progress = Progress(stride=measure.stride, repeats=measure.repeats, rule=StopRule(manifest))
        rng = np.random.default_rng(0)
        for number in range(there):
            for arm in manifest.arms:
                progress.add(
                    trial(
                        arm.id, number, int(1e6 * np.exp(rng.normal(0, noise))), disturbed=number in disturbed
                    )
                )
        return manifest, progress

    return make


def trial(
    arm: str, number: int, ns: int, attempt: int = 0, outcome: Outcome = Outcome.OK, disturbed: bool = False
) -> StoredTrial:
    record = TrialRecord(
        arm=arm,
        kind=Kind.TIMING,
        pack="p000",
        round=number,
        attempt=attempt,
        outcome=outcome,
        units=1.0,
        region_ns=ns,
        ended=1.0,
        disturbed=("a neighbour",) if disturbed else (),
    )
    return StoredTrial(Path(), record)


def test_without_a_target_every_planned_round_is_wanted(measured: Measured) -> None:
    manifest, progress = measured(2, rounds=5)
    assert progress.unfinished_rounds(manifest.packs[0]) == [2, 3, 4]


def test_the_planned_rounds_come_first_however_precise_they_are(measured: Measured) -> None:
    manifest, progress = measured(3, noise=0.001, rounds=6, precision=0.01)
    assert progress.rounds_wanted(manifest.packs[0]) == 6
    assert progress.unfinished_rounds(manifest.packs[0]) == [3, 4, 5]


def test_rounds_go_on_one_by_one_until_the_interval_is_narrow_enough(measured: Measured) -> None:
    manifest, progress = measured(6, noise=0.02, rounds=6, precision=0.01)
    pack, rng, number = manifest.packs[0], np.random.default_rng(1), 6
    while todo := progress.unfinished_rounds(pack):
        assert todo == [number], "one round more than there is"
        for arm in pack.arms:
            progress.add(trial(arm, number, int(1e6 * np.exp(rng.normal(0, 0.02)))))
        number += 1
    # The half-width of n pairs of sd 2.8 % is about 2.2 * 2.8 / sqrt(n): 1 % takes 15 to 30 rounds.
    assert 10 < number <= 30


def test_rounds_stop_on_the_clock_that_the_effects_will_be_judged_by(measured: Measured) -> None:
    manifest, progress = measured(0, rounds=6, precision=0.01)
    rng = np.random.default_rng(2)
    for number in range(6):
        for arm in manifest.arms:
            one = trial(arm.id, number, int(1e6 * np.exp(rng.normal(0, 0.3))))
            fields = {"displaced": True, "alone": True, "region_cpu_ns": 10**6}
            progress.add(StoredTrial(one.folder, replace(one.record, **fields)))
    assert progress.unfinished_rounds(manifest.packs[0]) == [], "CPU time does not scatter"


def test_the_largest_number_of_rounds_ends_what_never_becomes_precise(measured: Measured) -> None:
    manifest, progress = measured(30, noise=0.3, rounds=6, precision=0.01)
    assert progress.unfinished_rounds(manifest.packs[0]) == []
    assert StopRule(manifest).reason(manifest.packs[0], progress, 30) is None


def test_a_spent_budget_ends_a_pack_after_its_planned_rounds(measured: Measured) -> None:
    manifest, progress = measured(8, noise=0.3, rounds=4, budget_s=16.0)
    assert progress.rounds_wanted(manifest.packs[0]) == 8
    assert (
        StopRule(manifest).reason(manifest.packs[0], progress, 8)
        == "16 s of the 16 s in measure.budget_s are spent"
    )
    assert StopRule(manifest).reason(manifest.packs[0], progress, 7) is None


def test_an_arm_that_always_fails_keeps_no_sweep_going(measured: Measured) -> None:
    manifest, progress = measured(0, rounds=6, precision=0.01)
    for number in range(6):
        for arm in manifest.arms:
            fails = arm.label != "baseline"
            progress.add(trial(arm.id, number, 10**6, outcome=Outcome.FAILED if fails else Outcome.OK))
    assert progress.unfinished_rounds(manifest.packs[0]) == []


def test_a_disturbed_round_is_measured_again_once_all_others_are_there(measured: Measured) -> None:
    manifest, progress = measured(4, rounds=5, repeats=1, disturbed=(1, 3))
    pack = manifest.packs[0]
    assert progress.unfinished_rounds(pack) == [4]
    for arm in pack.arms:
        progress.add(trial(arm, 4, 10**6))
    assert progress.unfinished_rounds(pack) == [1]
    for arm in pack.arms:
        progress.add(trial(arm, 1, 10**6, attempt=1))
    assert progress.unfinished_rounds(pack) == [], "one repeat was allowed, and is used"
    assert progress.finished_attempt(pack, 1) == 1
    assert progress.finished_attempt(pack, 3) == 0


def test_of_two_attempts_the_less_disturbed_one_counts_even_when_it_came_first(measured: Measured) -> None:
    manifest, progress = measured(2, rounds=2, repeats=1)
    for arm in manifest.packs[0].arms:
        progress.add(trial(arm, 0, 10**6, attempt=1, disturbed=True))
    assert progress.finished_attempt(manifest.packs[0], 0) == 0


def test_orders_of_an_adaptive_pack_begin_like_those_of_a_fixed_one(measured: Measured) -> None:
    fixed, adaptive = measured(0, rounds=6)[0], measured(0, rounds=6, precision=0.01)[0]
    assert len(adaptive.packs[0].orders) == 30
    assert adaptive.packs[0].orders[:6] == fixed.packs[0].orders
