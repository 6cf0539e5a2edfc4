"""Rows of long series: under W&B's limits, with all that stands out, and exact where they are kept."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsweep.pipelines.publish.history_rows import (
    HEAD,
    Timing,
    iteration_rows,
    kept,
    log_rows,
    row_count,
    spikes,
)

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
