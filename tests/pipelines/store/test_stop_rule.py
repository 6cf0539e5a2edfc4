"""Which arms a round measures, and when a pack ends: decided by the records alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from machines import effects_of, stopping_sweep

from perfsweep.pipelines.analysis.effect_result import decide
from perfsweep.pipelines.config.types import DesignConfig
from perfsweep.pipelines.plan import plan
from perfsweep.pipelines.statistics.estimates import Estimate, Method
from perfsweep.pipelines.statistics.log_ratios import Cell, Rounds
from perfsweep.pipelines.store.progress import Progress, StoredTrial
from perfsweep.pipelines.store.records import PLACEBO, Effect, Kind, Manifest, Outcome, TrialRecord
from perfsweep.pipelines.store.stop_rule import StopRule, apart
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
        progress = Progress(repeats=measure.repeats, rule=StopRule(manifest))
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


def test_rounds_stop_on_the_time_that_the_effects_will_be_judged_by(measured: Measured) -> None:
    manifest, progress = measured(0, rounds=6, precision=0.01)
    rng = np.random.default_rng(2)
    for number in range(6):
        for arm in manifest.arms:
            lost_ns = int(1e6 * rng.uniform())
            one = trial(arm.id, number, 10**6 + lost_ns)
            progress.add(StoredTrial(one.folder, replace(one.record, lost_ns=lost_ns)))
    assert progress.unfinished_rounds(manifest.packs[0]) == [], "only what others took scatters"


def test_the_largest_number_of_rounds_ends_what_never_becomes_precise(measured: Measured) -> None:
    manifest, progress = measured(30, noise=0.3, rounds=6, precision=0.01)
    assert progress.unfinished_rounds(manifest.packs[0]) == []
    assert progress.rounds_wanted(manifest.packs[0]) == 30


EQUAL, APART, LOUD = 0.0, 0.3, 0.04
"""Of arms: no effect, one that is clear after six rounds, and the scatter of one that stays (else .01)."""


class Sweep:
    """Arms "0", "1", ... against the first, measured round by round as the rule asks for."""

    def __init__(
        self,
        planted: list[float],
        loud: tuple[int, ...] = (),
        server: Callable[[int], int | None] = lambda number: None,
        **changes: Any,
    ) -> None:
        self.server = server
        noise = np.full((len(planted) + 1, 1), 0.01)
        noise[list(loud)] = LOUD
        draws = np.random.default_rng(5).normal(0, 1, (len(noise), 40)) * noise
        self.ns = 1e6 * np.exp(draws + np.array([0.0, *planted])[:, None])
        manifest = stopping_sweep(len(noise), 40, **{"precision": 0.01, **changes.pop("measure", {})})
        self.manifest = manifest.model_copy(update=changes)
        self.pack, self.failing = self.manifest.packs[0], dict[str, int]()
        self.progress = self.empty()

    def empty(self) -> Progress:
        return Progress(rule=StopRule(self.manifest), repeats=self.manifest.sweep.measure.repeats)

    def measure(self, number: int, attempt: int = 0, arms: int | None = None) -> None:
        retired = self.progress.retired("p000", self.pack.arms)
        measured = [arm for arm in self.progress.measured(self.pack, number) if arm not in retired]
        for arm in measured[:arms]:
            fails = number >= self.failing.get(arm, 99)
            outcome = Outcome.FAILED if fails else Outcome.OK
            one = trial(arm, number, int(self.ns[int(arm), number]), attempt, outcome)
            self.progress.add(replace(one, record=replace(one.record, server=self.server(number))))

    def run(self) -> Sweep:
        while todo := self.progress.unfinished_rounds(self.pack):
            self.measure(todo[0])
        return self

    def arms(self, progress: Progress | None = None) -> list[set[str]]:
        """What is measured in each round that is wanted."""
        progress = progress or self.progress
        return [{*progress.measured(self.pack, n)} for n in range(progress.rounds_wanted(self.pack))]

    def rounds(self, arm: int) -> int:
        return sum(str(arm) in measured for measured in self.arms())


def test_an_arm_leaves_once_it_is_precise_or_clearly_apart_and_the_reference_stays_to_the_end() -> None:
    sweep = Sweep([EQUAL, APART, EQUAL], loud=(3,)).run()
    assert sweep.rounds(2) == 6 < sweep.rounds(1) < sweep.rounds(3) == sweep.rounds(0) == len(sweep.arms())
    assert all(later <= earlier for earlier, later in pairwise(sweep.arms()))


@pytest.mark.parametrize(("servers", "rounds"), [(2, 9), (1, 6)])
def test_an_arm_stays_until_two_servers_have_measured_it_where_there_are_as_many(
    servers: int, rounds: int
) -> None:
    sweep = Sweep(
        [EQUAL, APART, EQUAL], loud=(3,), measure={"servers": servers}, server=lambda number: number // 8
    )
    assert sweep.run().rounds(2) == rounds


def test_a_sweep_that_is_read_again_or_goes_on_after_an_interruption_decides_the_same() -> None:
    whole = Sweep([EQUAL, APART, EQUAL, 0.02], loud=(3,)).run()
    assert len({frozenset(arms) for arms in whole.arms()}) > 2, "arms left at different times"
    again = whole.empty()
    for one in sorted(whole.progress.every, key=lambda one: (one.record.arm, -(one.record.round or 0))):
        again.add(one)
    assert whole.arms(again) == whole.arms() and not again.unfinished_rounds(whole.pack)
    for number in (4, 9):
        broken = Sweep([EQUAL, APART, EQUAL, 0.02], loud=(3,))
        for done in range(number):
            broken.measure(done)
        broken.measure(number, arms=1)
        broken.measure(number, attempt=1)
        assert broken.run().arms() == whole.arms()


@pytest.mark.parametrize("since", [0, 8])
def test_an_arm_that_fails_is_waited_for_no_longer_and_the_others_go_on(since: int) -> None:
    sweep = Sweep([EQUAL, EQUAL, EQUAL], loud=(1, 3))
    sweep.failing = {"3": since}
    sweep.run()
    assert set(sweep.progress.retired("p000", sweep.pack.arms)) == {"3"}
    assert sweep.rounds(3) == max(6, since + 2) < sweep.rounds(1) == len(sweep.arms())


def test_a_failed_arm_that_is_tried_again_is_measured_like_the_others() -> None:
    sweep = Sweep([EQUAL, EQUAL])
    sweep.failing = {"2": 0}
    sweep.run()
    retry, attempt = frozenset({Outcome.FAILED}), 0
    while todo := sweep.progress.unfinished_rounds(sweep.pack, retry):
        attempt += 1
        for arm in sweep.progress.measured(sweep.pack, todo[0]):
            sweep.progress.add(trial(arm, todo[0], int(sweep.ns[int(arm), todo[0]]), attempt))
    assert len(sweep.progress.timed["2"]) == sweep.rounds(2) > 6


def contrast(**weights: float) -> Effect:
    own = {name.removeprefix("arm"): weight for name, weight in weights.items()}
    pairs = ((next(iter(own)), "0"),)
    return Effect(id="c", design="factorial", toggle="t", level="x", pairs=pairs, contrast=own)


def test_a_contrast_keeps_all_of_its_arms_until_it_is_precise() -> None:
    main = contrast(arm0=-0.5, arm1=0.5, arm2=-0.5, arm3=0.5)
    effects = (main, *effects_of(5)[3:])
    sweep = Sweep([EQUAL, EQUAL, EQUAL, APART], loud=(3,), effects=effects).run()
    assert sweep.rounds(1) == sweep.rounds(2) == sweep.rounds(3) == len(sweep.arms()) > sweep.rounds(4) == 6


def test_the_base_of_an_open_effect_stays_and_a_placebo_leaves_as_others_do() -> None:
    chain = Effect(id="chain", design="chain", toggle="t", level="x", pairs=(("2", "1"),))
    first, _, placebo = effects_of(4)
    effects = (first, chain, placebo.model_copy(update={"design": PLACEBO}))
    sweep = Sweep([APART, APART, EQUAL], loud=(2,), effects=effects).run()
    assert sweep.rounds(1) == sweep.rounds(2) == len(sweep.arms()) > sweep.rounds(3) > 6


def test_a_placebo_that_happens_to_lie_apart_stays_until_it_is_precise() -> None:
    """It is a bar for all others: after few rounds a wide one would keep each of them from being called."""
    first, placebo = effects_of(3)
    placebo = placebo.model_copy(update={"design": PLACEBO})
    sweep = Sweep([EQUAL, APART], loud=(2,), effects=(first, placebo)).run()
    assert sweep.rounds(2) == len(sweep.arms()) > sweep.rounds(1)
    used = [one.record for number in range(40) for one in sweep.progress.used(sweep.pack, number)]
    cells = [Cell("p000", one.round or 0, None, one.arm, one.ns_per_unit) for one in used]
    found = decide(Rounds(cells, "ns", apart(sweep.manifest)), sweep.manifest.effects, {}, 0.01)
    assert found.estimates[placebo.id].method is not Method.SEQUENCE


def test_an_arm_does_not_leave_as_apart_where_placebos_show_as_much() -> None:
    """It would be judged by the wide interval it left with, and never be called."""
    first, placebo = effects_of(3)
    effects = (first, placebo.model_copy(update={"design": PLACEBO}))
    alone = Sweep([0.05, EQUAL]).run()
    with_placebo = Sweep([0.05, 0.045], loud=(2,), effects=effects).run()
    assert alone.rounds(1) < with_placebo.rounds(1)


def test_a_round_is_repeated_with_the_arms_that_it_had_and_changes_no_decision() -> None:
    sweep = Sweep([EQUAL, APART], loud=(1,), measure={"repeats": 2})
    sweep.run()
    before = sweep.arms()
    for one in [one for one in sweep.progress.every if one.record.round in (2, 8)]:
        sweep.progress.add(replace(one, record=replace(one.record, disturbed=("a neighbour",))))
    for number in (2, 8):
        assert sweep.progress.unfinished_rounds(sweep.pack) == [n for n in (2, 8) if n >= number]
        sweep.ns[:, number] *= np.linspace(1, 1.5, 3)
        sweep.measure(number, attempt=1)
        assert sweep.progress.finished_attempt(sweep.pack, number) == 1
    assert sweep.arms() == before and not sweep.progress.unfinished_rounds(sweep.pack)
    assert sweep.progress.repeated(sweep.pack) == [2, 8]


def test_many_rounds_are_looked_at_now_and_then_and_once_each(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    real = Rounds.estimate

    def estimate(self: Rounds, effect: Effect, beyond: float = 0.0) -> Estimate:
        looks.append(self.rounds)
        return real(self, effect, beyond)

    monkeypatch.setattr(Rounds, "estimate", estimate)
    manifest = stopping_sweep(2, 400, precision=1e-6)
    pack, progress = manifest.packs[0], Progress(rule=StopRule(manifest))
    rng = np.random.default_rng(0)
    for number in range(150):
        for arm in pack.arms:
            progress.add(trial(arm, number, int(1e6 * np.exp(rng.normal(0, 0.1)))))
    assert progress.unfinished_rounds(pack) == [150]
    assert len(looks) < 110 and looks[:5] == [6, 7, 8, 9, 10]
    progress.add(trial(pack.arms[0], 150, 10**6))
    assert progress.unfinished_rounds(pack) == [150] and len(set(looks)) == len(looks)


def test_a_mere_look_has_the_rounds_that_were_asked_for(measured: Measured) -> None:
    """A sweep that names a precision or a budget may be looked at too."""
    manifest, progress = measured(2, noise=0.3, rounds=2, precision=0.01, budget_s=1e6, look=True)
    assert progress.unfinished_rounds(manifest.packs[0]) == [] and apart(manifest) is None
