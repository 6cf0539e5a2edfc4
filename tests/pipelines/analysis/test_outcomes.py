"""How many trials of an arm ended which way."""

from __future__ import annotations

import polars as pl

from perfsweep.pipelines.analysis.arm_records import outcome_counts, outcome_text, sum_counts

ENDED = [("a", "ok"), ("a", "ok"), ("a", "oom"), ("b", "failed"), ("c", "ok"), ("a", "failed")]


def test_trials_are_counted_by_arm_and_outcome() -> None:
    table = pl.DataFrame(ENDED, schema=["arm", "outcome"], orient="row")
    counts = outcome_counts(table)
    assert counts == {"a": {"ok": 2, "oom": 1, "failed": 1}, "b": {"failed": 1}, "c": {"ok": 1}}
    assert next(iter(counts["a"])) == "ok"


def test_counts_of_several_arms_add_up_without_what_did_not_occur() -> None:
    assert sum_counts([{"oom": 1, "ok": 2}, {"ok": 3}, {}]) == {"ok": 5, "oom": 1}
    assert list(sum_counts([{"oom": 1}, {"ok": 3}])) == ["ok", "oom"], "in the order of the outcomes"
    assert sum_counts([]) == {}


def test_counts_in_words() -> None:
    assert outcome_text({"ok": 9, "oom": 3}) == "9 ok, 3 oom"
    assert outcome_text({}) == ""
