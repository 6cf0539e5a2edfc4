"""How each arm's trials ended, as counts: an arm that ran out of memory twice is not one that ran well."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import polars as pl

from perfsweep.pipelines.store.records import Outcome

Counts = Mapping[str, int]
"""Number of trials by outcome; outcomes that did not occur are left out."""


def outcome_counts(trials: pl.DataFrame) -> dict[str, dict[str, int]]:
    """Count the trials of each arm (id) of any kind, attempts that do not count included."""
    counts: dict[str, dict[str, int]] = {}
    grouped = trials.group_by("arm", "outcome").len()
    for outcome in Outcome:
        for arm, _, number in grouped.filter(pl.col("outcome") == outcome.value).iter_rows():
            counts.setdefault(arm, {})[outcome.value] = number
    return counts


def sum_counts(counts: Iterable[Counts]) -> dict[str, int]:
    """Add up the counts of several arms, in the order of the outcomes."""
    all_counts = list(counts)
    totals = {outcome.value: sum(one.get(outcome.value, 0) for one in all_counts) for outcome in Outcome}
    return {outcome: number for outcome, number in totals.items() if number}


def outcome_text(counts: Counts) -> str:
    """Say how trials ended: ``9 ok, 3 oom``."""
    return ", ".join(f"{number} {outcome}" for outcome, number in counts.items())
