"""The table of trials: a row for each, what its record says, and which of them comparisons rest on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
from planned_sweeps import FAST, NAIVE, arm, manifest, pack, progress, record

from perfsweep.pipelines.analysis.collect import collect
from perfsweep.pipelines.store.records import Failure, Kind, Outcome, RankFigures, SweepFolder, TrialRecord

PLAN = manifest(arm(NAIVE, "naive"), arm(FAST, "amp=bf16"), packs=(pack(NAIVE, FAST, rounds=2),))


def table(folder: Path, *records: TrialRecord) -> pl.DataFrame:
    return collect(SweepFolder(folder), PLAN, progress(*records))


def row(folder: Path, **own: Any) -> dict[str, Any]:
    (found,) = table(folder, record(FAST, **{"round": 0, **own})).iter_rows(named=True)
    return found


def test_only_timing_trials_of_finished_rounds_are_used_and_of_those_the_attempt_that_counts(
    tmp_path: Path,
) -> None:
    lost = {"outcome": Outcome.OOM, "failure": Failure(type="X", message="")}
    found = table(
        tmp_path,
        record(FAST, round=0, attempt=1),
        record(NAIVE, round=0, attempt=1),
        record(NAIVE, round=0),
        record(FAST, round=0, **lost),
        record(NAIVE, round=1),
        record(FAST, kind=Kind.EVIDENCE),
    )
    used = found.filter(pl.col("used")).select("arm", "round", "attempt").rows()
    assert sorted(used) == [(NAIVE, 0, 1), (FAST, 0, 1)], "round 1 lacks an arm"
    assert found.height == 6 and (tmp_path / "tables" / "trials.parquet").exists()
    assert pl.read_parquet(tmp_path / "tables" / "trials.parquet").equals(found)


def test_rows_stand_in_the_order_of_the_sweep(tmp_path: Path) -> None:
    found = table(
        tmp_path,
        record(NAIVE, round=1, started=1.0),
        record(NAIVE, round=0, attempt=1, started=2.0),
        record(FAST, round=0, started=4.0),
        record(NAIVE, round=0, started=3.0),
    )
    assert found["started"].to_list() == [3.0, 4.0, 2.0, 1.0]
    assert found["label"].to_list() == ["naive", "amp=bf16", "naive", "naive"]


def test_times_are_per_unit_where_a_timing_trial_did_any(tmp_path: Path) -> None:
    times = {"region_ns": 3 * 10**9, "lost_ns": 10**9, "region_cpu_ns": 10**9}
    names = ("ns_per_unit", "wall_ns_per_unit", "cpu_ns_per_unit")
    found = row(tmp_path, units=2.0, **times)
    assert [found[name] for name in names] == [1e9, 1.5e9, 5e8]
    assert (found["region_s"], found["lost_ns"]) == (3.0, 10**9)
    for none in ({"units": 0.0}, {"units": 2.0, "kind": Kind.EVIDENCE}):
        found = row(tmp_path, **times, **none)
        assert [found[name] for name in names] == [None] * 3


def test_words_of_a_record_are_told_in_one_cell_each(tmp_path: Path) -> None:
    found = row(
        tmp_path,
        outcome=Outcome.FAILED,
        failure=Failure(type="X", message="first\nsecond"),
        keys={"torch": "2", "device": "cpu"},
        disturbed=("load 9 on 2 cores", "a swap"),
    )
    assert (found["outcome"], found["reason"]) == ("failed", "first")
    assert (found["keys"], found["disturbed"]) == ("device=cpu; torch=2", "load 9 on 2 cores; a swap")
    assert row(tmp_path)["reason"] == ""


def test_ranks_are_told_where_there_are_several(tmp_path: Path) -> None:
    ranks = RankFigures(nodes=("a", "b"), region_ns=(1, 2), collectives=0.25, straggling=0.5)
    found = row(tmp_path, ranks=ranks)
    assert (found["ranks"], found["collectives"], found["straggling"]) == (2, 0.25, 0.5)
    assert [row(tmp_path)[name] for name in ("ranks", "collectives", "straggling")] == [None] * 3
