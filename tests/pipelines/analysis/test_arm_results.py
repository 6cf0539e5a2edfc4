"""Each arm over all rounds, from records whose figures are known."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

import polars as pl
import pytest
from measured import change, compared, simulated, spec_of, write

from perfsweep.pipelines.analysis.arm_results import ArmResult
from perfsweep.pipelines.config.types import DesignConfig
from perfsweep.pipelines.store.records import Kind, Manifest, SweepFolder
from perfsweep.workloads.api import Levels

Results = Callable[..., dict[str, ArmResult]]


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
    for place, record in enumerate(own):
        change(
            record, region_ns=10**9 * (place + 1), units=100.0, peak_bytes=1000 + place, mfu=0.1 * (place + 1)
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


def test_an_arm_that_shares_no_round_with_the_reference_has_its_own_median(sweep) -> None:
    for label, lost in (("baseline", (0, 1)), ("work=single", (2, 3, 4))):
        for place in lost:
            change(records(*sweep, label)[place], outcome="failed")
    single = results(*sweep)["work=single"]
    assert single.rounds == 2 and single.paired_ns == single.ns_per_unit


def test_counts_of_the_kernel_are_medians_of_an_iteration_and_delay_is_a_share_of_the_region(sweep) -> None:
    for place, record in enumerate(records(*sweep, "work=single")):
        change(
            record,
            region_ns=2 * 10**9,
            iterations=10,
            minor_faults=100 * (place + 1),
            major_faults=10,
            system_ns=5000,
            run_delay_ns=10**8 * (place + 1),
        )
    single = results(*sweep)["work=single"]
    assert (single.minor_faults, single.major_faults, single.system_ns) == (30.0, 1.0, 500.0)
    assert single.run_delay == pytest.approx(0.15)


def test_of_several_ranks_an_arm_has_their_number_and_what_they_lost_to_one_another(sweep) -> None:
    for place, record in enumerate(records(*sweep, "work=single")):
        profiled = {"collectives": 0.1 * (place + 1), "straggling": 0.02} if place < 3 else {}
        change(record, ranks={"nodes": ["n0", "n0", "n1"], "region_ns": [1, 1, 1], **profiled})
    single = results(*sweep)["work=single"]
    assert (single.ranks, single.nodes) == (3, 2)
    assert (single.collectives, single.straggling) == (pytest.approx(0.2), 0.02)
    for record in records(*sweep, "work=single")[1:]:
        change(record, ranks=None)
    alone = results(*sweep)["work=single"]
    assert (alone.ranks, alone.nodes, alone.collectives) == (3, 2, 0.1), "one trial with ranks tells as much"


def test_counters_that_differ_from_the_references_are_the_arms_changes(sweep) -> None:
    folder, manifest = sweep
    for arm in manifest.arms:
        products = 40.0 if arm.label == "baseline" else 20.0
        write(
            folder,
            spec_of(manifest, arm.id, "p000", None, Kind.COUNTING),
            counters={"products": products, "same": 1.0},
        )
    found = results(folder, manifest)
    assert [(one.counter, one.reference, one.value) for one in found["work=single"].changes] == [
        ("products", 40.0, 20.0)
    ]
    assert found["baseline"].changes == ()


def test_an_arm_without_a_round_has_nothing_but_how_it_ended(sweep) -> None:
    for record in records(*sweep, "work=single"):
        change(record, outcome="oom")
    single = results(*sweep)["work=single"]
    assert (single.rounds, single.ns_per_unit, single.peak_bytes, single.paired_ns) == (0, None, None, None)
    assert single.outcomes == {"ok": 1, "oom": 5}


def test_the_table_of_trials_has_what_a_later_question_needs(sweep) -> None:
    folder, manifest = sweep
    first = records(folder, manifest, "work=single")[0]
    change(
        first,
        region_ns=4 * 10**8,
        region_cpu_ns=2 * 10**8,
        units=100.0,
        keys={"b": "2", "device": "fake", "a": "1"},
        disturbed=["throttled", "load 3.0"],
        ranks={"nodes": ["n0", "n1"], "region_ns": [1, 1], "collectives": 0.5, "straggling": 0.25},
        failure={"type": "Odd", "message": "first line\nsecond line"},
    )
    compared(folder, manifest)
    table = pl.read_parquet(folder.tables_dir / "trials.parquet")
    assert table.height == 12 and table["used"].sum() == 10
    row = table.filter(pl.col("folder") == str(first.parent)).to_dicts()[0]
    assert {
        "label": "work=single",
        "kind": "timing",
        "ns_per_unit": 4e6,
        "cpu_ns_per_unit": 2e6,
        "region_s": 0.4,
        "keys": "a=1; b=2; device=fake",
        "disturbed": "throttled; load 3.0",
        "ranks": 2,
        "collectives": 0.5,
        "straggling": 0.25,
        "reason": "first line",
        "outcome": "ok",
        "used": True,
    }.items() <= row.items()
    evidence = table.filter(pl.col("kind") == "evidence")
    assert evidence["ns_per_unit"].to_list() == [None, None] and not evidence["used"].any()
    times = table.filter(pl.col("used") & (pl.col("label") == "baseline"))["ns_per_unit"].to_list()
    assert results(folder, manifest)["baseline"].ns_per_unit == median(times)


def test_a_trial_that_did_no_iteration_has_no_counts_of_one(sweep) -> None:
    for place, record in enumerate(records(*sweep, "work=single")):
        change(record, iterations=0 if place < 4 else 10, minor_faults=100, major_faults=10, system_ns=5000)
    single = results(*sweep)["work=single"]
    assert (single.minor_faults, single.major_faults, single.system_ns) == (10.0, 1.0, 500.0)
