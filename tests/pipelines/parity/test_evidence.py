"""Levels that draw at random: paired seeds, as many as are needed, decide if they are equivalent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from measured import prepared
from planned_sweeps import arm, effect, manifest, pack, record

from perfsweep.pipelines.analysis import collect, compare
from perfsweep.pipelines.analysis.effect_result import EffectResult
from perfsweep.pipelines.config.types import (
    ClusterConfig,
    DesignConfig,
    MeasureConfig,
    SweepCommand,
    SweepConfig,
)
from perfsweep.pipelines.execution.pack import PackRun
from perfsweep.pipelines.parity.evidence import NO_CHOICE, Agreement, comparable, replayed
from perfsweep.pipelines.parity.results import ParityVerdict
from perfsweep.pipelines.parity.timed import Asked
from perfsweep.pipelines.statistics.verdicts import Verdict
from perfsweep.pipelines.store.progress import Progress, StoredTrial
from perfsweep.pipelines.store.records import IDEAL_LOADER, Effect, Kind, Outcome
from perfsweep.pipelines.store.schema import Declared, DeclaredLevel
from perfsweep.pipelines.store.trial_schema import REPEAT
from perfsweep.workloads.api import REPLAYED, Check, Comparator, Evidence, Parity
from perfsweep.workloads.errors import RecordError


def measured(workload: str, runs: Path) -> dict[str, tuple[EffectResult, int]]:
    """By level of the dice: the effect, and with how many seeds its evidence was computed."""
    command = SweepCommand(
        workload={"name": workload},
        measure=MeasureConfig(
            rounds=2,
            iterations=4,
            warmup_max=5,
            evidence_iterations=2,
            counting_iterations=1,
            timeout_s=60,
            repeats=0,
            timed_parity=False,
        ),
        cluster=ClusterConfig(executor="inprocess"),
        sweep=SweepConfig(name="dice", designs=[DesignConfig("one_at_a_time")]),
        runs=str(runs),
    )
    folder, planned = prepared(command)
    PackRun(folder, planned, planned.packs[0]).run()
    effects = compare.compare(folder, planned, collect.collect(folder, planned)).effects

    def seeds(name: str) -> int:
        return sum(stage.startswith("evidence") for _, _, stage, _ in folder.trial_dirs(name))

    return {one.effect.level: (one, seeds(one.effect.pairs[0][0])) for one in effects}


@pytest.mark.slow
def test_noise_is_judged_by_the_planned_seeds_and_by_three_more_where_they_do_not_decide(
    tmp_path: Path,
) -> None:
    results = measured("toys.dice:Dice", tmp_path)
    found = {level: (one.parity.verdict, seeds) for level, (one, seeds) in results.items() if one.parity}
    assert found["fair"] == (ParityVerdict.EQUIVALENT, 5), "far below the margin"
    assert found["biased"] == (ParityVerdict.DIFFERENT, 5), "beyond it"
    assert results["biased"][0].verdict is Verdict.DIFFERENT
    assert "score moves by +5" in results["biased"][0].note
    assert found["wide"] == (ParityVerdict.UNCHECKED, 8)
    assert "pairs would decide" in results["wide"][0].note


BF16 = DeclaredLevel(value="bf16", parity=Parity.TOLERANCE)
NOISY = DeclaredLevel(value="noisy", parity=Parity.STOCHASTIC)
LEVELS = {
    "amp": (DeclaredLevel(value="off"), BF16, NOISY),
    "fuse": (DeclaredLevel(value="no"), DeclaredLevel(value="on")),
}
ARMS = {"base": ("off", "no"), "fused": ("off", "on"), "rounded": ("bf16", "no"), "drawn": ("noisy", "no")}


class Sweep:
    """Four arms whose evidence, a number or what else it is, a test says, by arm and offset of the seed."""

    def __init__(self, *effects: Effect, oracles: tuple[Check, ...] = (), **measure: Any) -> None:
        checks = (Check("loss"), *oracles)
        declared = Declared(unit="step", shape="steps", checks=checks, levels=LEVELS)
        arms = [arm(name, levels={"amp": amp, "fuse": fuse}) for name, (amp, fuse) in ARMS.items()]
        own = {"declared": declared, "references": {"naive": "base", "late": "rounded"}, "measure": measure}
        self.manifest = manifest(*arms, sweep=own, effects=effects)
        self.progress, self.evidence = Progress(), dict[Path, Evidence | RecordError]()
        self.asked: list[Path] = []

    def add(self, name: str, found: float | Evidence | RecordError, seed: int = 0, **own: Any) -> None:
        folder = Path(f"{name}{seed}")
        self.evidence[folder] = Evidence({}, {"loss": found}) if isinstance(found, float) else found
        told = record(name, Kind.EVIDENCE, replicate=seed, **{"units": 10.0, **own})
        self.progress.add(StoredTrial(folder, told))

    def read(self, folder: Path) -> Evidence:
        self.asked.append(folder)
        if isinstance(found := self.evidence[folder], RecordError):
            raise found
        return found

    @property
    def agreement(self) -> Agreement:
        return Agreement(self.manifest, self.progress, self.read)


def against(name: str, other: str = "base", **own: Any) -> Effect:
    return effect((name, other), **own)


def test_an_effect_of_one_pair_is_about_its_arm_and_one_of_several_about_the_worst() -> None:
    sweep = Sweep()
    for name, loss in (("base", 1.0), ("fused", 1.0), ("rounded", 2.0)):
        sweep.add(name, loss)
    of, pairs = sweep.agreement.of, (("fused", "rounded"), ("fused", "base"))
    assert of(effect(("fused", "rounded"))).verdict is ParityVerdict.IDENTICAL
    assert of(effect(*pairs)).verdict is ParityVerdict.DIFFERENT
    contrast = effect(("fused", "rounded"), contrast={"fused": 1.0, "rounded": -1.0})
    assert of(contrast).verdict is ParityVerdict.DIFFERENT
    late = effect(("rounded", "base"), reference="late")
    assert of(late).verdict is ParityVerdict.IDENTICAL, "it is the reference that results are held against"
    ideal = of(effect(("fused", "base"), design=IDEAL_LOADER))
    assert (ideal.verdict, ideal.reason) == (ParityVerdict.UNCHECKED, NO_CHOICE)


def test_an_arm_that_rounds_may_differ_by_rounding_and_so_may_whatever_a_rounding_reference_does() -> None:
    sweep = Sweep()
    for name, loss in (("base", 1.0), ("fused", 1.001), ("rounded", 1.001)):
        sweep.add(name, loss)
    between = sweep.agreement.between
    assert between("fused", "base").verdict is ParityVerdict.DIFFERENT
    assert between("rounded", "base").verdict is ParityVerdict.WITHIN_TOLERANCE
    assert between("base", "rounded").verdict is ParityVerdict.WITHIN_TOLERANCE
    again = sweep.manifest.arm("rounded")
    runs = (Evidence({}, {"loss": loss}) for loss in (1.0, 1.001))
    repeated = sweep.agreement.judged(*runs, again, again)
    assert repeated.verdict is ParityVerdict.DIFFERENT, "it repeats itself exactly all the same"


def test_an_arm_that_did_fewer_units_than_its_reference_is_different() -> None:
    sweep = Sweep()
    sweep.add("base", 1.0)
    sweep.add("fused", 1.0, units=9.0)
    found = sweep.agreement.between("fused", "base")
    assert (found.verdict, found.reason) == (ParityVerdict.DIFFERENT, "did 9 of 10 units")


def test_a_reference_that_differs_from_itself_convicts_nobody() -> None:
    sweep = Sweep(against("fused"), against("rounded"))
    assert sweep.agreement.repeats_wanted(pack(*ARMS)) == [], "nothing is known to differ"
    sweep.add("base", 1.0)
    sweep.add("fused", 2.0)
    assert sweep.agreement.between("fused", "base").verdict is ParityVerdict.DIFFERENT
    assert sweep.agreement.repeats_wanted(pack(*ARMS)) == ["base"]
    assert sweep.agreement.repeats_wanted(pack("base", "rounded")) == [], "the arm is of another pack"
    sweep.add("base", 1.0, REPEAT)
    assert sweep.agreement.between("fused", "base").verdict is ParityVerdict.DIFFERENT
    sweep.add("base", 1.5, REPEAT)
    found = sweep.agreement.between("fused", "base")
    assert found.verdict is ParityVerdict.UNCHECKED
    assert found.reason.startswith(
        "the baseline does not repeat itself: two runs of it with one seed differ, "
    )
    assert "loss" in found.reason and sweep.agreement.repeats_wanted(pack(*ARMS)) == []


def test_a_level_that_draws_at_random_has_the_planned_seeds_and_three_more_where_these_leave_it_open() -> (
    None
):
    sweep = Sweep(seeds=4)
    agreement = sweep.agreement
    assert [agreement.seeds_wanted(*pair) for pair in (("fused", "base"), ("drawn", "drawn"))] == [1, 1]
    assert agreement.seeds_wanted("drawn", "base") == 4
    for seed in range(4):
        sweep.add("base", 1.0, seed)
        sweep.add("drawn", 1.0 + 0.02 * (-1) ** seed, seed)
        assert agreement.seeds_wanted("drawn", "base") == (4 if seed < 3 else 4 + 3)
    near = Sweep(seeds=4)
    for seed in range(4):
        near.add("base", 1.0, seed)
        near.add("drawn", 1.0 + 1e-4 * (-1) ** seed, seed)
    assert near.agreement.seeds_wanted("drawn", "base") == 4
    assert near.agreement.between("drawn", "base").verdict is ParityVerdict.EQUIVALENT


def test_a_level_that_may_draw_at_random_and_computes_the_same_bits_needs_one_seed() -> None:
    sweep = Sweep(seeds=4)
    for name in ("base", "drawn"):
        sweep.add(name, 1.0)
    assert sweep.agreement.seeds_wanted("drawn", "base") == 1
    assert sweep.agreement.between("drawn", "base").verdict is ParityVerdict.IDENTICAL


def test_an_arm_that_may_draw_its_data_otherwise_is_compared_with_other_data_and_that_is_said() -> None:
    agreement = Sweep().agreement
    shared = agreement.sharing({"base": "a", "fused": "b", "rounded": "a", "drawn": "c"})
    assert shared == {"base": "a", "fused": "b", "rounded": "a"}
    (note,) = agreement.notes
    assert note.startswith("d: its data differ from the base's")


def test_seeds_are_wanted_in_pairs_and_a_reference_once_more_where_both_arms_are_of_the_pack() -> None:
    sweep = Sweep(against("drawn"), against("rounded"), seeds=3)
    pairs = [(arm, seed) for seed in (1, 2) for arm in ("base", "drawn")]
    assert sweep.agreement.replicates_wanted(pack("base", "drawn")) == pairs
    assert sweep.agreement.replicates_wanted(pack("base", "fused")) == []
    sweep = Sweep(against("fused"), against("drawn"), seeds=3)
    for name, loss in (("base", 1.0), ("fused", 2.0)):
        sweep.add(name, loss)
    wanted = sweep.agreement.replicates_wanted(pack(*ARMS))
    assert wanted == [*pairs, ("base", REPEAT)]


def test_evidence_of_a_trial_that_failed_is_none_and_what_cannot_be_read_is_named() -> None:
    sweep = Sweep()
    sweep.add("base", 1.0, outcome=Outcome.FAILED)
    sweep.add("fused", RecordError("evidence.npz is damaged"))
    agreement = sweep.agreement
    assert agreement.evidence("base") is agreement.evidence("fused") is None
    assert agreement.notes == ["skipped: evidence.npz is damaged"] and sweep.asked == [Path("fused0")]


def timed_elsewhere(sweep: Sweep, *trials: float) -> None:
    """An arm whose evidence agrees, and whose timing trials have these norms beside its course's 1."""
    for name in ("base", "fused"):
        sweep.add(name, 1.0)
        sweep.progress.add(StoredTrial(Path(), record(name, Kind.COURSE, course={40: {"norm": 1.0}})))
    for number, norm in enumerate(trials):
        own = {"round": number, "reached": 40, "numbers": {"norm": norm}}
        sweep.progress.add(StoredTrial(Path(), record("fused", **own)))


def test_timing_trials_that_all_computed_otherwise_make_an_arm_different_and_ask_for_another_course() -> None:
    sweep = Sweep(against("fused"))
    timed_elsewhere(sweep, 2.0, 2.0)
    found = sweep.agreement.between("fused", "base")
    assert (found.verdict, found.worst) == (ParityVerdict.DIFFERENT, found.deviations[-1])
    assert found.reason == "timed norm is 2 after 40 iterations, and untimed 1"
    assert [one.check for one in found.deviations] == ["loss", "norm"]
    assert sweep.agreement.courses_wanted(pack("base", "fused")) == [Asked("fused", 0, (40,), copy=1)]
    assert sweep.agreement.courses_wanted(pack("fused")) == [], "its reference is in another pack"


def test_timing_trials_of_which_one_computed_otherwise_are_a_note_once_and_change_no_parity() -> None:
    sweep = Sweep(against("fused"))
    timed_elsewhere(sweep, 2.0, 1.0)
    agreement = sweep.agreement
    assert agreement.between("fused", "base").verdict is ParityVerdict.IDENTICAL
    agreement.between("fused", "rounded")
    (note,) = agreement.notes
    assert note.startswith("f: depends on the hash seed or the process: timed norm is 2")


def test_courses_that_are_lacking_are_asked_for_before_any_doubt() -> None:
    sweep = Sweep(against("fused"))
    timed_elsewhere(sweep, 2.0, 2.0)
    sweep.progress.add(StoredTrial(Path(), record("rounded", round=0, reached=30, numbers={"norm": 1.0})))
    lacking = sweep.agreement.courses_wanted(pack("base", "fused", "rounded"))
    assert [(one.arm, one.at) for one in lacking] == [("base", (30, 40)), ("rounded", (30, 40))]


def test_only_where_the_reference_fails_its_oracle_may_an_arm_have_other_numbers_where_it_is_timed() -> None:
    oracle = Check("gap", Comparator.AT_MOST, 0.5)
    for gap, verdict in ((1.0, ParityVerdict.IDENTICAL), (0.0, ParityVerdict.DIFFERENT)):
        sweep = Sweep(oracles=(oracle,))
        for name, norm in (("base", 1.0), ("fused", 2.0)):
            sweep.add(name, Evidence({}, {"loss": 1.0, "gap": gap}))
            sweep.progress.add(StoredTrial(Path(), record(name, Kind.COURSE, course={40: {"norm": norm}})))
        assert sweep.agreement.between("fused", "base").verdict is verdict


def test_replayed_iterations_count_where_both_arms_have_replayed_them() -> None:
    ours = Evidence({f"{REPLAYED}1 loss": np.ones(2), "x": np.ones(1)}, {"loss": 1.0})
    theirs = Evidence({f"{REPLAYED}{n} loss": np.ones(2) for n in (1, 2)} | {"y": np.ones(1)}, {"loss": 2.0})
    assert replayed(ours) and not replayed(Evidence({}, {"loss": 1.0})) and not replayed(None)
    found = comparable(theirs, ours)
    assert found is not None and found.numbers == {"loss": 2.0}
    assert set(found.tensors) == {f"{REPLAYED}1 loss", "y"}
    assert comparable(theirs, None) is theirs and comparable(None, ours) is None
