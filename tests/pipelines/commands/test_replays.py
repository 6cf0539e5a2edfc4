"""Replays of recorded trials stop and judge as real comparisons do: what is planted comes out."""

from __future__ import annotations

import math

import numpy as np
import pytest
from replayed import Recorded, Replay, read

from perfsweep.pipelines.statistics.verdicts import Verdict
from perfsweep.pipelines.store.options import MeasureConfig

MEASURE = MeasureConfig(rounds=6, servers=3, rounds_max=60, margin=0.025, precision=0.0125, budget_s=300.0)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """Forty servers of two rounds, whose pairs scatter by 1.4 %, and of which each trial takes a second."""
    rng, file = np.random.default_rng(1), tmp_path_factory.mktemp("recorded") / "trials.csv"
    rows = ["server,round,wall_ns,lost_ns,units,disturbed,seconds"]
    for number in range(80):
        for _ in range(2):
            ns = round(1e9 * math.exp(rng.normal(0, 0.01)))
            rows.append(f"0-{number // 2},0-{number},{2 * ns},{ns},40,,1.0")
    file.write_text("\n".join(rows) + "\n")
    return read(file)


def verdict(recorded: Recorded, change: float, seed: int) -> Verdict | None:
    result, _ = Replay(recorded, np.random.default_rng(seed), change).judged(MEASURE)
    assert result.ratio == pytest.approx(math.exp(change), abs=0.03)
    return result.verdict


def test_what_is_planted_is_called_and_nothing_else(recorded: Recorded) -> None:
    assert {verdict(recorded, 0.0, seed) for seed in range(3)} == {Verdict.NO_DIFFERENCE}
    assert {verdict(recorded, math.log(1.06), seed) for seed in range(3)} == {Verdict.SLOWER}
    assert verdict(recorded, -math.log(1.06), 1) is Verdict.FASTER
