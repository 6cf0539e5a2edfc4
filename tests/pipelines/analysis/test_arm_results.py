"""Each arm over all rounds, from records whose figures are known: times, ends, counters, oracles, scaling."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
from measured import change, compared, simulated
from planned_sweeps import record

from perfsweep.pipelines.analysis.arm_records import (
    ArmRecords,
    CounterChange,
    Scaling,
    Work,
    counter_changes,
    scaling_of,
)
from perfsweep.pipelines.analysis.arm_results import ArmResult, OracleDeviation, judge_quality
from perfsweep.pipelines.config.types import DesignConfig
from perfsweep.pipelines.store.progress import Progress, StoredTrial
from perfsweep.pipelines.store.records import Effect, Kind, Manifest, Outcome, Pack, RankFigures, SweepFolder
from perfsweep.workloads.api import Check, Comparator, Evidence, Levels


def seconds(levels: Levels) -> float:
    return 0.5 if levels["work"] == "single" else 1.0


@pytest.fixture
def sweep(command: Callable) -> tuple[SweepFolder, Manifest]:
    """Five rounds of the naive arm, and of one that takes half the time."""
    design = DesignConfig("one_at_a_time", levels={"work": ["single"]})
    return simulated(command(design, measure={"rounds": 5}), seconds)


def results(folder: SweepFolder, manifest: Manifest) -> dict[str, ArmResult]:
    return {one.label: one for one in compared(folder, manifest).arms}


def records(folder: SweepFolder, manifest: Manifest, label: str):
    (arm,) = (arm.id for arm in manifest.arms if arm.label == label)
    return sorted(folder.path.glob(f"trials/{arm}/*-r*/record.json"))


def test_an_arm_has_the_median_of_its_rounds_by_the_unit_and_its_peak(sweep) -> None:
    own = records(*sweep, "work=single")
    for place, file in enumerate(own):
        change(
            file, region_ns=10**9 * (place + 1), units=100.0, peak_bytes=1000 + place, mfu=0.1 * (place + 1)
        )
    found = results(*sweep)
    naive, single = found["baseline"], found["work=single"]
    assert (single.rounds, single.ns_per_unit, single.peak_bytes) == (5, 3e7, 1002)
    assert single.mfu == pytest.approx(0.3)
    assert (naive.name, naive.peak_bytes, naive.mfu) == ("naive", 1000, None)
    assert single.outcomes == {"ok": 6}
    assert (single.ranks, single.nodes, single.collectives) == (None, None, None)


def test_the_paired_time_is_the_references_median_times_what_shared_rounds_say(sweep) -> None:
    """Rounds wander by a third, so that medians of few rounds may order arms otherwise."""
    found = results(*sweep)
    naive, single = found["baseline"], found["work=single"]
    assert naive.paired_ns == naive.ns_per_unit
    assert single.paired_ns == pytest.approx(0.5 * naive.ns_per_unit, rel=0.01)  # type: ignore[operator]


def test_counts_of_the_kernel_are_medians_of_an_iteration_and_delay_is_a_share_of_the_region(sweep) -> None:
    for place, file in enumerate(records(*sweep, "work=single")):
        change(
            file,
            region_ns=2 * 10**9,
            iterations=10 * (place != 3),
            minor_faults=100 * (place + 1),
            major_faults=10,
            system_ns=5000,
            run_delay_ns=10**8 * (place + 1),
        )
    single = results(*sweep)["work=single"]
    counts = (single.minor_faults, single.major_faults, single.system_ns)
    assert counts == (25.0, 1.0, 500.0), "a trial without an iteration has none"
    assert single.run_delay == pytest.approx(0.15)


def test_of_several_ranks_an_arm_has_their_number_and_what_they_lost_to_one_another(sweep) -> None:
    for place, file in enumerate(records(*sweep, "work=single")):
        profiled = {"collectives": 0.1 * (place + 1), "straggling": 0.02} if place < 3 else {}
        change(file, ranks={"nodes": ["n0", "n0", "n1"], "region_ns": [1, 1, 1], **profiled})
    single = results(*sweep)["work=single"]
    assert (single.ranks, single.nodes) == (3, 2)
    assert (single.collectives, single.straggling) == (pytest.approx(0.2), 0.02)
    for file in records(*sweep, "work=single")[1:]:
        change(file, ranks=None)
    alone = results(*sweep)["work=single"]
    assert (alone.ranks, alone.nodes, alone.collectives) == (3, 2, 0.1), "one trial with ranks tells as much"


PACK = Pack(id="p000", orders=(("arm",), ("arm",)), start="fork")


def trial(number: int, attempt: int, **fields: object) -> StoredTrial:
    own = {"round": number, "attempt": attempt, "ended": attempt, **fields}
    return StoredTrial(Path(f"{number}-{attempt}"), record("arm", **own))


def counted(arm: str = "arm", outcome: Outcome = Outcome.OK, **fields: object) -> StoredTrial:
    return StoredTrial(Path(f"{arm}-counting"), record(arm, Kind.COUNTING, outcome=outcome, **fields))


def records_of(*trials: StoredTrial, **own: object) -> ArmRecords:
    progress = Progress()
    for one in trials:
        progress.add(one)
    return ArmRecords(progress, [PACK], **own)  # type: ignore[arg-type]


def test_a_counting_trial_that_failed_counted_nothing_and_is_told() -> None:
    assert records_of(counted(counters={"kernels": 3.0})).counters("arm") == {"kernels": 3.0}
    failed = records_of(counted(outcome=Outcome.OOM, counters={"kernels": 3.0}), trial(0, 0))
    assert failed.counters("arm") is None
    assert [one.kind for one in failed.failed("arm")] == [Kind.COUNTING]


def test_what_was_found_on_disk_is_counted_by_timing_trials() -> None:
    hit = trial(0, 0, counters={"cache_hits": 2.0, "kernels": 9.0})
    found = records_of(counted(counters={"cache_hits": 0.0, "kernels": 3.0}), hit).counters("arm")
    assert found == {"cache_hits": 2.0, "kernels": 3.0}


@pytest.mark.parametrize(
    ("counters", "cold", "once"),
    [
        ({"compile_s": 20.0}, 20.0, 1.0 + 3.0 + 19.0),  # a trial compiled for a second of its own
        ({"compile_s": 0.0}, 0.0, 1.0 + 3.0),  # never cheaper than what a trial took
        ({}, 1.0, 1.0 + 3.0),
    ],
)
def test_an_arm_costs_once_what_it_takes_with_nothing_compiled_yet(
    counters: dict, cold: float, once: float
) -> None:
    shared = {"first_iteration_s": 3.0, "compile_s": 1.0}
    timed = [trial(number, 0, setup_s=2.0 * number, **shared) for number in (0, 1)]
    records = records_of(counted(counters=counters), *timed)
    assert records.cold_compile_s("arm") == cold
    assert records.one_off_s("arm") == once
    assert records_of(counted(counters=counters)).one_off_s("arm") is None, "without a round"


def test_only_counters_that_both_counted_and_that_differ_are_listed_the_furthest_first():
    assert CounterChange("a", 0.25, 0.5).size == CounterChange("a", 0.5, 0.25).size == math.log(2)
    reference = {"same": 1, "twice": 2.0, "unknown": None, "eightfold": 4.0, "appears": 0.0}
    own = {"same": 1, "twice": 4.0, "unknown": 1.0, "eightfold": 0.5, "appears": 1.0, "new": 1.0}
    assert [one.counter for one in counter_changes(reference, own)] == ["appears", "eightfold", "twice"]


CHECKS = (
    Check("trace"),
    Check("excess", Comparator.AT_MOST, 1e-5, against="oracle"),
    Check("mismatches", Comparator.AT_MOST, 0.0, against="oracle"),
)


@pytest.mark.parametrize(("value", "holds"), [(1e-5, True), (1.1e-5, False), (math.nan, False), (-1.0, True)])
def test_a_figure_holds_up_to_its_bound_and_nan_never(value, holds):
    assert OracleDeviation("excess", value, 1e-5).holds is holds


def test_arms_show_their_deviations_from_oracles_in_declared_order_and_no_others():
    seen = {
        "a": Evidence(numbers={"mismatches": 0.0, "excess": 2e-5, "trace": 3.0}),
        "b": None,
        "c": Evidence(),
    }
    found = judge_quality({"a": "naive", "b": "broken", "c": "silent"}, CHECKS, seen.get)
    assert [(row.arm, [one.check for one in row.deviations]) for row in found] == [
        ("naive", ["excess", "mismatches"])
    ]
    assert [one.holds for one in found[0].deviations] == [False, True]


WIDE_PACK = Pack(id="p000", orders=(("base", "arm"),), start="exec")
EFFECT = Effect(id="e", design="ladder", toggle="ddp", level="4", pairs=(("arm", "base"),))


def timed(arm: str, ranks: int, units: float) -> StoredTrial:
    """A trial of ten iterations."""
    figures = RankFigures(nodes=("n1",) * ranks, region_ns=(1,) * ranks) if ranks > 1 else None
    return StoredTrial(Path(arm), record(arm, round=0, units=units, iterations=10, ranks=figures))


def scaling(
    ratio: float | None, ranks: int, units: float = 640, base_ranks: int = 1, effect: Effect = EFFECT
) -> Scaling | None:
    """The scaling of an arm that takes `ratio` of the time of a base that does 640 units."""
    progress = Progress()
    for one in (timed("base", base_ranks, 640), timed("arm", ranks, units)):
        progress.add(one)
    ends = (None, None) if ratio is None else (ratio * 0.8, ratio * 1.25)
    return scaling_of(effect, ratio, *ends, ArmRecords(progress, [WIDE_PACK]))


@pytest.mark.parametrize(
    ("ratio", "units", "base", "work", "efficiency"),
    [(0.25, 4, 1, Work.WEAK, 1.0), (0.5, 3, 1, Work.OTHER, 0.5), (0.5, 1, 2, Work.STRONG, 1.0)],
)
def test_scaling_is_named_by_the_work_of_a_rank_and_counts_ranks_beyond_those_of_the_base(
    ratio: float, units: int, base: int, work: Work, efficiency: float
) -> None:
    found = scaling(ratio, 4, units=units * 640, base_ranks=base)
    assert found is not None and found.work is work
    assert found.efficiency == pytest.approx(efficiency)


@pytest.mark.parametrize(("ratio", "ranks", "base"), [(None, 4, 1), (2.0, 1, 2), (0.5, 2, 2)])
def test_without_more_ranks_or_a_time_and_of_many_arms_there_is_none(
    ratio: float | None, ranks: int, base: int
) -> None:
    assert scaling(ratio, ranks, base_ranks=base) is None
    many = EFFECT.model_copy(update={"contrast": {"arm": 0.5, "base": -0.5}})
    assert scaling(0.5, 4, effect=many) is None
