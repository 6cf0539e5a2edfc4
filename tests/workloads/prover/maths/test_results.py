"""Ranks of queries among their corruptions, worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from perfsweep.workloads.prover import oracle
from perfsweep.workloads.prover.maths.episodes import EPS, FAILED, metrics, ranked, scores


def outcome(
    log_prob: list[float], success: list[bool], ambiguous: list[bool] | None = None
) -> dict[str, Any]:
    doubt = ambiguous or [False] * len(success)
    return {
        "log_prob": np.array(log_prob, dtype=np.float32),
        "success": np.array(success),
        "ambiguous": np.array(doubt),
    }


def test_a_score_without_a_proof_is_a_hundred_less() -> None:
    found = scores(outcome([-1.0, -2.0], [True, False]))
    assert found.tolist() == [-1.0, -102.0]
    assert found.dtype == np.float64
    assert FAILED == 100.0


@pytest.mark.parametrize(
    ("log_prob", "success", "rank"),
    [
        ([-1.0, -2.0, -0.5], [True, True, True], 2.0),
        ([-1.0, -1.0, -1.0 - EPS / 2, -9.0], [True] * 4, 2.0),  # two share its place
        ([-1.0, -1.0 + 2 * EPS, -1.0 - 2 * EPS], [True] * 3, 2.0),
        ([-1.0, -9.0, -9.0], [False, True, False], 2.0),
    ],
)
def test_a_rank_counts_better_ones_and_half_of_equal_ones(
    log_prob: list[float], success: list[bool], rank: float
) -> None:
    found = ranked(outcome(log_prob, success), np.array([len(success)]))
    assert found.rank.tolist() == [rank]


def test_hits_count_ranks_up_to_one_three_and_ten() -> None:
    found = metrics(np.array([1.0, 1.5, 3.0, 10.0, 10.5]))
    assert found == pytest.approx(
        {"mrr": (1 + 1 / 1.5 + 1 / 3 + 0.1 + 1 / 10.5) / 5, "hits1": 0.2, "hits3": 0.6, "hits10": 0.8}
    )
    assert all(math.isnan(value) for value in metrics(np.zeros(0)).values())


def test_ranks_are_the_oracles_query_by_query():
    rng = np.random.default_rng(0)
    drawn = np.round(rng.normal(size=60) * 4) / 4
    sizes = np.array([1, 20, 9, 30])
    expected = [oracle.expected_rank(list(part)) for part in np.split(drawn, np.cumsum(sizes)[:-1])]
    assert ranked(outcome(list(drawn), [True] * 60), sizes).rank.tolist() == expected
