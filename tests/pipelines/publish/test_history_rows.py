"""Rows of long series: under W&B's limits, with all that stands out, and exact where they are kept."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from recorded import NAIVE, build, publish_here, timed_rows

from perfsweep.pipelines.publish.history_rows import (
    HEAD,
    HISTORY_LIMIT,
    WARMUP_LIMIT,
    Timing,
    iteration_rows,
    kept,
    log_rows,
    row_count,
    spikes,
)
from perfsweep.pipelines.store.files import write_arrays

series = st.lists(st.integers(-(2**40), 2**40), min_size=1, max_size=3000).map(np.array)


@given(values=series, limit=st.integers(3, 400))
def test_a_thinned_series_fits_and_keeps_its_extremes_and_order(values: np.ndarray, limit: int) -> None:
    chosen = kept(values, limit)
    assert len(chosen) <= limit
    assert (np.diff(chosen) > 0).all()
    assert chosen[0] >= 0 and chosen[-1] < len(values)
    head = values[: min(HEAD, limit // 4)]
    if len(values) > len(head):
        assert {values.min(), values.max()} <= set(values[chosen])


def test_the_first_iterations_are_all_kept_and_no_plateau_disappears() -> None:
    assert kept(np.arange(50), 50).tolist() == list(range(50)), "a series that fits is kept whole"
    chosen = kept(np.zeros(100_000), 2500)
    assert chosen[:HEAD].tolist() == list(range(HEAD))
    # A bucket of a constant series keeps its first entry: gaps are a bucket wide.
    assert np.diff(chosen).max() <= 100_000 / (2400 // 3) + 1


LONG, WARM = 30_000, 6_000


def test_many_thousand_iterations_become_few_rows_with_exact_values_and_numbers_of_the_full_series(
    tmp_path: Path,
) -> None:
    built = build(tmp_path / "demo")
    walls = np.random.default_rng(1).integers(100_000, 200_000, LONG)
    walls[22_222] = 9_000_000
    arrays = {"start_ns": np.cumsum(walls) - walls, "wall_ns": walls, "epoch_ns": np.array([10**18])}
    arrays |= {"warmup_wall_ns": np.full(WARM, 10**6), "log_loss": np.linspace(2, 1, LONG)}
    arrays |= {"log_ms": np.full(LONG, -1.0)}
    write_arrays(built.folder.trial_dir(built.spec(NAIVE, 1)) / "iterations.npz", arrays)
    done = publish_here(built)
    assert done.complete, done.warning
    run, first = built.run_file(NAIVE), {0: 0, 1: 7, 2: 7 + LONG}
    assert all(
        row["iter/index"] == row["iter/in_round"] + first[row["iter/round"]] for row in timed_rows(run)
    )
    assert 100 < sum(row.get("warmup/round") == 1 for row in run.history) <= WARMUP_LIMIT / 3
    assert run.summary["bench/n_iters"] == LONG + 14
    rows = [row for row in timed_rows(run) if row["iter/round"] == 1]
    assert 0.8 * HISTORY_LIMIT / 3 < len(rows) <= HISTORY_LIMIT / 3
    assert [row["iter/ms"] for row in rows] == [walls[int(row["iter/in_round"])] / 1e6 for row in rows]
    assert max(row["iter/ms"] for row in rows) == 9.0
    assert {row["iter/log_ms"] for row in rows} == {-1.0}, "a logged key cannot hide a time"


def test_what_was_logged_more_or_less_often_than_once_an_iteration_has_rows_of_its_own() -> None:
    record: Any = SimpleNamespace(round=1)
    whole = {name: np.arange(1, 4) * 10**6 for name in ("start_ns", "wall_ns")} | {"epoch_ns": np.array([0])}
    for count in (2, 4):
        logged = {"log_loss": np.arange(count) / 2, "log_index": np.zeros(count)}
        timing = Timing(record, {**whole, **logged})
        assert timing.counts == {"warmup": 0, "iter": 3, "log": count}
        assert not any("iter/loss" in row for row in iteration_rows(timing, 0, 1))
        assert list(log_rows(timing, 9, 1)) == [
            {"log/index": 9 + at, "log/round": 1, "log/in_round": at, "log/loss": at / 2}
            for at in range(count)
        ]
        assert row_count(timing, 1) == 3 + count
    timing = Timing(record, {**whole, "log_loss": np.zeros(3)})
    assert timing.counts["log"] == 0 and list(log_rows(timing, 0, 1)) == []


def test_evaluations_are_seen_however_a_line_is_sampled() -> None:
    walls = np.full(220, 1_000_000)
    walls[54::55] = 9_000_000
    walls[219] = 12_000_000
    found = spikes([Timing(SimpleNamespace(), {"wall_ns": walls})] * 2)  # type: ignore[arg-type]
    assert (found["spikes"], found["spikes_ms"], found["spikes_every"]) == (8, 9.0, 55)
    assert (found["largest_ms"], found["largest_in_round"]) == (12.0, 219)
    assert found["spikes_share"] == pytest.approx(39 / (216 + 39))


def test_an_even_series_has_no_spikes_and_nothing_timed_says_nothing() -> None:
    even = Timing(SimpleNamespace(), {"wall_ns": np.full(50, 1_000_000)})  # type: ignore[arg-type]
    assert spikes([even]) == {"spikes": 0, "spikes_share": 0, "largest_ms": 1.0, "largest_in_round": 0}
    assert spikes([]) == {}
