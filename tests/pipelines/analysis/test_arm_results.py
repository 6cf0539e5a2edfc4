"""Each arm over all rounds, and the series of trials that it comes from, by records with known figures."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
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
from perfsweep.pipelines.analysis.iteration_series import phases_of, read_series
from perfsweep.pipelines.config.types import DesignConfig
from perfsweep.pipelines.store.progress import Progress, StoredTrial
from perfsweep.pipelines.store.records import (
    Effect,
    Kind,
    Manifest,
    Outcome,
    Pack,
    RankFigures,
    SweepFolder,
    write_iterations,
)
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
            peak_bytes=1000 + place,
            mfu=0.1 * (place + 1),
        )
    single = results(*sweep)["work=single"]
    counts = (single.minor_faults, single.major_faults, single.system_ns)
    assert counts == (25.0, 1.0, 500.0), "a trial without an iteration has none"
    assert (single.run_delay, single.mfu) == (pytest.approx(0.15), pytest.approx(0.3))
    assert single.peak_bytes == 1002


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


def test_what_was_found_on_disk_is_counted_by_timing_trials() -> None:
    hit = trial(0, 0, counters={"cache_hits": 2.0, "kernels": 9.0})
    found = records_of(counted(counters={"cache_hits": 0.0, "kernels": 3.0}), hit).counters("arm")
    assert found == {"cache_hits": 2.0, "kernels": 3.0}


def test_compiling_is_cold_in_a_counting_trial_and_warm_in_timing_trials_and_never_of_evidence() -> None:
    """Evidence is computed deterministically, for which torch compiles again whatever it finds."""
    timing = [trial(number, 0, compile_s=seconds) for number, seconds in enumerate((0.5, 0.7))]
    evidence = StoredTrial(Path("evidence"), record("arm", Kind.EVIDENCE, compile_s=11.0))
    found = records_of(counted(counters={"compile_s": 37.0}), evidence, *timing)
    assert (found.cold_compile_s("arm"), found.warm_compile_s("arm")) == (37.0, pytest.approx(0.6))


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
    ("ratio", "units", "base", "scaled"),
    [
        (0.25, 4, 1, (Work.WEAK, 1.0)),
        (0.5, 3, 1, (Work.OTHER, 0.5)),
        (0.5, 1, 2, (Work.STRONG, 1.0)),
        (0.5, 1, 4, None),
        (None, 1, 1, None),
    ],
)
def test_scaling_is_named_by_the_work_of_a_rank_and_counts_ranks_beyond_those_of_the_base(
    ratio: float | None, units: int, base: int, scaled: tuple[Work, float] | None
) -> None:
    found = scaling(ratio, 4, units=units * 640, base_ranks=base)
    assert (found and (found.work, found.efficiency)) == scaled
    many = EFFECT.model_copy(update={"contrast": {"arm": 0.5, "base": -0.5}})
    assert scaling(0.5, 4, effect=many) is None


def trials(tmp_path, **series) -> pl.DataFrame:
    rows = []
    for name, arrays in series.items():
        (tmp_path / name).mkdir()
        if arrays is not None:
            write_iterations(
                tmp_path / name, {key: np.asarray(values, dtype=np.int64) for key, values in arrays.items()}
            )
        rows.append(
            {
                "arm": name[0],
                "label": name[0],
                "pack": "p000",
                "round": len(rows),
                "used": True,
                "units": 10.0,
                "outcome": "ok",
                "iterations": len(arrays["wall_ns"]) if arrays else 1,
                "region_s": 1.0,
            }
        )
        rows[-1]["folder"] = str(tmp_path / name)
    return pl.DataFrame(rows)


def test_a_missing_series_is_named_and_the_others_stand(tmp_path):
    table = trials(tmp_path, a0=None, b0={"wall_ns": [5]}, c0=None, d0=None)
    own = ({}, {}, {"used": False}, {"outcome": "failed"})
    read = read_series(pl.DataFrame([row | one for row, one in zip(table.to_dicts(), own, strict=True)]))
    assert len(read.unreadable) == 1, "those that count and ended well are read"
    assert "a0" in read.unreadable[0]
    assert phases_of(read.phases, "a") == (None, ())
    assert phases_of(read.phases, "b")[0] == 5
    assert not read.contradictions


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"region_s": 5e-8}, "its region of 5e-08 s is shorter than its iterations, 1e-07 s"),
        ({"iterations": 1}, "it counts 1 iterations, and its series has 2"),
        ({"units": 0.0}, "it ended well with 0 units of work"),
    ],
)
def test_a_record_that_contradicts_its_iterations_is_named_and_gives_no_phases(tmp_path, changes, why):
    table = trials(tmp_path, a0={"wall_ns": [50, 50]}, b0={"wall_ns": [50, 50]})
    broken = [row | changes if row["arm"] == "a" else row for row in table.to_dicts()]
    read = read_series(pl.DataFrame(broken))
    assert read.contradictions == {str(tmp_path / "a0"): why}
    assert phases_of(read.phases, "a") == (None, ())
    assert phases_of(read.phases, "b")[0] == 50


def test_an_iteration_has_the_devices_time_and_a_phase_that_never_ran_is_none(tmp_path):
    arrays = {
        "wall_ns": [50, 50, 50],
        "device_ns": [70, 30, 80],
        "host_forward": [0, 12, 4],
        "host_eval": [0] * 3,
    }
    read = read_series(trials(tmp_path, a0=arrays))
    assert phases_of(read.phases, "a")[0] == 70
    assert [share.phase for share in phases_of(read.phases, "a")[1]] == ["forward"]
    rows = {row["phase"]: row for row in read.phases.iter_rows(named=True)}
    assert [rows[name]["on"] for name in ("iteration", "forward")] == ["device", "host"]
    assert rows["forward"]["median_iteration_ns"] == 8, "of the iterations that it ran in"
    assert rows["eval"]["median_iteration_ns"] == 0
    assert rows["iteration"]["ns_per_unit"] == 18


def test_what_others_had_of_the_core_is_taken_off_every_phase_alike(tmp_path):
    table = trials(
        tmp_path, a0={"wall_ns": [100, 100, 400], "host_forward": [60, 60, 0], "device_forward": [30, 30, 30]}
    )
    own = {"ns_per_unit": 45.0, "wall_ns_per_unit": 60.0}  # of 600 ns in 10 units
    for lost_ns, kept in ((150, 0.75), (0, 1.0), (None, 1.0)):
        read = read_series(pl.DataFrame([{**row, **own, "lost_ns": lost_ns} for row in table.to_dicts()]))
        median, shares = phases_of(read.phases, "a")
        assert (median, shares[0].on) == (100 * kept, "device")
        assert shares[0].ns_per_unit == pytest.approx(9.0 * kept)
        assert shares[0].ns_per_unit < own["ns_per_unit"]


def test_a_round_that_counts_gives_no_times_of_a_trial_that_failed_in_it_or_is_left_out() -> None:
    failed, good = trial(0, 0, outcome=Outcome.FAILED, setup_s=9.0), trial(1, 0, setup_s=1.0)
    lost = counted(outcome=Outcome.OOM, counters={"kernels": 3.0})
    assert records_of(lost, good).counters("arm") is None
    records = records_of(failed, good, counted())
    assert records.timed("arm") == [good.record]
    assert [one.folder for one in records.every_timed()] == [Path("1-0")]
    assert [(one.kind, one.outcome) for one in records.all("arm")] == [
        (Kind.TIMING, Outcome.OK),
        (Kind.TIMING, Outcome.FAILED),
        (Kind.COUNTING, Outcome.OK),
    ]
    left_out = records_of(failed, good, left_out={"1-0"})
    assert left_out.timed("arm") == [] and left_out.median("arm", "setup_s") is None
