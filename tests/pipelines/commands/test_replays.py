"""Replays of recorded trials stop and judge as real comparisons do: what is planted comes out."""

from __future__ import annotations

import math
from pathlib import Path

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


def replayed(recorded: Recorded, change: float, seed: int, **options: float) -> tuple[Verdict | None, float]:
    changed = {**MEASURE.__dict__, **options}
    result, seconds = Replay(recorded, np.random.default_rng(seed), change).judged(MeasureConfig(**changed))
    assert result.ratio == pytest.approx(math.exp(change), abs=0.03)
    return result.verdict, seconds


def test_what_is_planted_is_called_and_nothing_else(recorded: Recorded) -> None:
    assert {replayed(recorded, 0.0, seed)[0] for seed in range(3)} == {Verdict.NO_DIFFERENCE}
    assert {replayed(recorded, math.log(1.06), seed)[0] for seed in range(3)} == {Verdict.SLOWER}
    assert replayed(recorded, -math.log(1.06), 1)[0] is Verdict.FASTER


def test_rounds_end_by_the_budget_where_they_are_never_precise(recorded: Recorded) -> None:
    assert replayed(recorded, 0.0, 1, precision=1e-6, budget_s=40.0)[1] == pytest.approx(40.0, abs=2.0)


def test_a_further_look_keeps_the_rounds_that_are_there(recorded: Recorded) -> None:
    replay = Replay(recorded, np.random.default_rng(3))
    first, _ = replay.judged(MeasureConfig(**{**MEASURE.__dict__, "precision": 0.03}))
    second, _ = replay.judged(MeasureConfig(**{**MEASURE.__dict__, "precision": 0.006}))
    assert 6 <= first.rounds < second.rounds


def test_the_recorded_trials_are_whole_rounds_of_two() -> None:
    file = Path(__file__).parents[2] / "benchmarks" / "versions_trials.csv"
    recorded = read(file)
    assert len(recorded.servers) >= 10 and all(len(pair) == 2 for one in recorded.servers for pair in one)
