"""What pictures are drawn from: series thinned, rounds of arms, and the times of sizes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from perfsweep.pipelines.report.pictures.chart_data import (
    POINTS,
    RoundTimes,
    SizeResult,
    last_traces,
    round_times,
    size_curves,
    spikes,
    thin,
)
from perfsweep.pipelines.store.records import Arm, write_iterations

SCHEMA = {
    "arm": pl.String,
    "round": pl.Int64,
    "used": pl.Boolean,
    "outcome": pl.String,
    "ns_per_unit": pl.Float64,
    "peak_bytes": pl.Int64,
    "folder": pl.String,
}


def trials(*rows: dict[str, Any]) -> pl.DataFrame:
    usual = {"round": 0, "used": True, "outcome": "ok", "ns_per_unit": 1.0, "peak_bytes": 10, "folder": ""}
    return pl.DataFrame([{**usual, **row} for row in rows], schema=SCHEMA)


def test_a_short_series_is_drawn_as_it_is_from_where_it_begins() -> None:
    assert thin(np.array([5.0, 7.0]), 3) == ((3.0, 4.0), (5.0, 7.0))
    assert thin(np.zeros(0), 3) == ((), ())
    assert len(thin(np.zeros(POINTS), 0)[0]) == POINTS


def test_a_long_series_is_drawn_as_medians_of_equal_bins() -> None:
    values = np.arange(3 * POINTS, dtype=float)
    values[1] = 1e6  # one outlier of a bin of three
    x, y = thin(values, 10)
    assert (len(x), len(y)) == (POINTS, POINTS)
    assert (x[0], y[0]) == (11.0, 2.0)
    assert (x[-1], y[-1]) == (10 + 3 * POINTS - 2, 3 * POINTS - 2)


def series(folder: Path, wall_ns: list[int], warm_ns: list[int] | None = None) -> str:
    folder.mkdir()
    arrays = {
        "start_ns": np.cumsum(wall_ns),
        "wall_ns": np.array(wall_ns),
        "flags": np.zeros(len(wall_ns), np.uint32),
    }
    if warm_ns is not None:
        arrays["warmup_wall_ns"] = np.array(warm_ns)
    write_iterations(folder, arrays)
    return str(folder)


def test_of_every_arm_the_last_round_that_counts_is_traced_after_its_warm_up(tmp_path: Path) -> None:
    last = series(tmp_path / "last", [2_000_000, 3_000_000], [9_000_000, 8_000_000])
    first = series(tmp_path / "first", [7_000_000])
    table = trials(
        {"arm": "a", "round": 1, "folder": last},
        {"arm": "a", "round": 0, "folder": first},
        {"arm": "a", "round": 2, "used": False, "folder": first},
        {"arm": "a", "round": 3, "outcome": "oom", "folder": first},
        {"arm": "b", "folder": first},
        {"arm": "c", "folder": str(tmp_path / "lost")},
    )
    a, b = last_traces(table, {"a": "A", "none": "N", "c": "C", "b": "B"})
    assert (a.arm, a.label) == ("a", "A")
    assert (a.warm_x, a.warm_ms) == ((0.0, 1.0), (9.0, 8.0))
    assert (a.timed_x, a.timed_ms) == ((2.0, 3.0), (2.0, 3.0))
    assert (b.label, b.warm_x, b.timed_x, b.timed_ms) == ("B", (), (0.0,), (7.0,))
    assert a.has_warm_up and not b.has_warm_up


def test_a_discarded_job_is_one_time_which_is_no_line(tmp_path: Path) -> None:
    folder = series(tmp_path / "job", [2_000_000], [9_000_000])
    (trace,) = last_traces(trials({"arm": "a", "folder": folder}), {"a": "A"})
    assert not trace.has_warm_up


def arrays_with(iterations: int, at: dict[int, dict[str, float]]) -> dict[str, np.ndarray]:
    """Iterations of 10 ms, and some with a phase that takes more ms; "" is time without a phase."""
    names = dict.fromkeys(name for own in at.values() for name in own)
    arrays = {"wall_ns": np.full(iterations, 10e6), "host_forward": np.full(iterations, 8e6)}
    arrays |= {f"host_{name}": np.zeros(iterations) for name in names if name and name != "forward"}
    for place, own in at.items():
        for name, ms in own.items():
            arrays["wall_ns"][place] += ms * 1e6
            if name:
                arrays[f"host_{name}"][place] += ms * 1e6
    return arrays


@pytest.mark.parametrize(
    ("at", "names"),
    [
        ({4: {"evaluate": 90}, 24: {"evaluate": 90}, 44: {"evaluate": 90}}, ["evaluate, every 20"]),
        ({7: {"evaluate": 90}, 9: {"evaluate": 90}, 44: {"evaluate": 90}}, ["evaluate, 3 of 60"]),
        ({59: {"gc": 60, "evaluate": 30, "save": 5}}, ["gc and evaluate, 1 of 60"]),
        ({3: {"": 50}, 9: {"forward": 80}}, ["forward, 1 of 60", "outside phases, 1 of 60"]),
        ({3: {"forward": 15}}, []),
    ],
)
def test_spikes_are_named_by_the_phases_that_take_longer_in_them_and_how_often(
    at: dict[int, dict[str, float]], names: list[str]
) -> None:
    assert [one.name for one in spikes(arrays_with(60, at), 0)] == names


def test_spikes_stand_where_they_were_however_long_the_series_is() -> None:
    (found,) = spikes(arrays_with(10 * POINTS, {999: {"evaluate": 90}}), 100)
    assert (found.x, found.ms) == ((1099.0,), (100.0,))


def test_rounds_are_those_that_count_in_the_order_of_the_plan() -> None:
    table = trials(
        {"arm": "b", "ns_per_unit": 4.0},
        {"arm": "a", "ns_per_unit": 1.0},
        {"arm": "a", "ns_per_unit": 2.0, "round": 1},
        {"arm": "a", "ns_per_unit": 9.0, "used": False},
        {"arm": "a", "ns_per_unit": 9.0, "outcome": "oom"},
    )
    found = round_times(table, {"a": "A", "b": "B", "c": "C"})
    assert found == [RoundTimes("A", (1.0, 2.0)), RoundTimes("B", (4.0,))]


def arm(name: str, level: Any) -> Arm:
    return Arm(id=name, label=name, levels={"slab": level})


@pytest.mark.parametrize(
    ("level", "value", "text"),
    [(4, 4.0, "4"), (0.5, 0.5, "0.5"), ("auto", float("inf"), "auto"), (True, float("inf"), "True")],
)
def test_what_is_no_number_stands_behind_all_sizes(level: Any, value: float, text: str) -> None:
    (curve,) = size_curves(trials(), [arm("a", level)], {"slab": {"a"}})
    assert curve.sizes == (SizeResult(value, text, None, None, "no rounds"),)


def test_a_ladder_has_the_medians_of_each_size_or_how_it_ended() -> None:
    table = trials(
        {"arm": "four", "ns_per_unit": 3.0, "peak_bytes": 10},
        {"arm": "four", "ns_per_unit": 1.0, "peak_bytes": 30},
        {"arm": "four", "ns_per_unit": 2.0, "peak_bytes": None},
        {"arm": "four", "ns_per_unit": 99.0, "used": False, "peak_bytes": 99},
        {"arm": "four", "ns_per_unit": 99.0, "outcome": "failed", "peak_bytes": 99},
        {"arm": "big", "outcome": "failed", "used": False},
        {"arm": "big", "outcome": "oom", "used": False},
        {"arm": "unused", "used": False},
    )
    arms = [arm("big", 8), arm("four", 4), arm("unused", 16), arm("other", 2)]
    (curve,) = size_curves(table, arms, {"slab": {"four", "big", "unused"}})
    assert (curve.toggle, curve.sizes) == (
        "slab",
        (
            SizeResult(4.0, "4", 2.0, 20, "ok"),
            SizeResult(8.0, "8", None, None, "oom"),
            SizeResult(16.0, "16", None, None, "no rounds"),
        ),
    )
