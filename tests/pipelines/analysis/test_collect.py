"""Tables of trials: what records say, which of them count, and where the time of an arm goes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from planned_sweeps import FAST, NAIVE, arm, manifest, pack, progress, record

from perfsweep.pipelines.analysis.collect import collect
from perfsweep.pipelines.analysis.phases import phases_of, read_series
from perfsweep.pipelines.store.records import (
    Failure,
    Kind,
    Outcome,
    SweepFolder,
    TrialRecord,
    write_iterations,
)

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


def test_times_are_per_unit_where_a_timing_trial_did_any(tmp_path: Path) -> None:
    times = {"region_ns": 3 * 10**9, "lost_ns": 10**9, "region_cpu_ns": 10**9}
    names = ("ns_per_unit", "wall_ns_per_unit", "cpu_ns_per_unit")
    found = row(tmp_path, units=2.0, **times)
    assert [found[name] for name in names] == [1e9, 1.5e9, 5e8]
    assert (found["region_s"], found["lost_ns"]) == (3.0, 10**9)
    for none in ({"units": 0.0}, {"units": 2.0, "kind": Kind.EVIDENCE}):
        found = row(tmp_path, **times, **none)
        assert [found[name] for name in names] == [None] * 3


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
    read = read_series(trials(tmp_path, a0=None, b0={"wall_ns": [5]}))
    assert len(read.unreadable) == 1
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


def test_trials_that_do_not_count_or_failed_are_not_read(tmp_path):
    table = trials(tmp_path, a0=None, b0=None, c0={"wall_ns": [5]})
    own = ({"used": False}, {"outcome": "failed"}, {})
    read = read_series(pl.DataFrame([row | one for row, one in zip(table.to_dicts(), own, strict=True)]))
    assert (read.unreadable, read.contradictions, set(read.phases["arm"])) == ([], {}, {"c"})


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
