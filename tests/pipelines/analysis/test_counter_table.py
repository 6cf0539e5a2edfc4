"""Counters of arms beside the reference's."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsweep.pipelines.analysis.arm_records import (
    CounterChange,
    bound_by,
    counter_changes,
    counter_table,
    counters_of,
)
from perfsweep.pipelines.store.records import Arm, Kind, Outcome, TrialRecord

COUNTERS = st.dictionaries(st.sampled_from("abcdef"), st.none() | st.floats(0, 1e9))


@given(COUNTERS, COUNTERS)
def test_only_counters_that_both_counted_and_that_differ_are_listed_the_furthest_first(reference, own):
    changes = counter_changes(reference, own)
    listed = {one.counter for one in changes}
    for name in "abcdef":
        before, after = reference.get(name), own.get(name)
        assert (name in listed) == (before is not None and after is not None and before != after)
    assert [one.size for one in changes] == sorted((one.size for one in changes), reverse=True)


def test_a_change_is_as_large_as_its_ratio_and_appearing_is_the_largest():
    assert CounterChange("a", 0.25, 0.5).size == CounterChange("a", 0.5, 0.25).size == math.log(2)
    assert CounterChange("a", 0.0, 1.0).size == CounterChange("a", 1.0, 0.0).size == math.inf


def test_an_arm_or_reference_that_was_not_counted_lists_nothing():
    assert counter_changes(None, {"a": 1.0}) == counter_changes({"a": 1.0}, None) == ()


def test_the_table_has_a_row_for_each_arm_and_counter():
    arms = [Arm(id="x", levels={}, label="naive"), Arm(id="y", levels={}, label="fast")]
    table = counter_table(arms, {"x": {"passes": 100.0, "flops": None}, "y": None})
    assert table.rows() == [("x", "naive", "flops", None), ("x", "naive", "passes", 100.0)]


def test_what_only_timing_trials_can_count_takes_the_place_of_what_the_counting_trial_saw():
    shared = {"arm": "a", "pack": "p000", "round": 0, "attempt": 0, "outcome": Outcome.OK}
    counting = TrialRecord(**shared, kind=Kind.COUNTING, counters={"passes": 10.0, "cache_hits": 0.0})
    timings = [TrialRecord(**shared, kind=Kind.TIMING, counters={"cache_hits": hits}) for hits in (1.0, 7.0)]
    assert counters_of(counting, timings) == {"passes": 10.0, "cache_hits": 7.0}
    assert counters_of(counting, []) == counting.counters


@pytest.mark.parametrize(
    ("busy_ns", "wall_ns", "words"),
    [
        (43.0, 100.0, "host-bound: the device works 43% of the time"),
        (79.0, 100.0, "host-bound: the device works 79% of the time"),
        (80.0, 100.0, "device-bound: the device works 80% of the time"),
        (120.0, 100.0, "device-bound: the device works 100% of the time"),
        (None, 100.0, None),
        (50.0, None, None),
    ],
)
def test_an_arm_is_bound_by_what_is_busy_most_of_the_time(busy_ns, wall_ns, words: str | None) -> None:
    assert bound_by(busy_ns, wall_ns) == words
