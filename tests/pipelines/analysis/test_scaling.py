"""Efficiency of ranks: the gain in speed by that of ranks, and whether each of them does less or as much."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfsweep.pipelines.analysis.arm_records import ArmRecords, Scaling, Work, scaling_of
from perfsweep.pipelines.store.progress import Progress, StoredTrial
from perfsweep.pipelines.store.records import Effect, Kind, Outcome, Pack, RankFigures, TrialRecord

PACK = Pack(id="p000", orders=(("base", "arm"),), start="exec")
EFFECT = Effect(id="e", design="ladder", toggle="ddp", level="4", pairs=(("arm", "base"),))


def timed(arm: str, ranks: int, units: float) -> StoredTrial:
    """A trial of ten iterations."""
    own = {"arm": arm, "kind": Kind.TIMING, "pack": "p000", "outcome": Outcome.OK, "round": 0, "attempt": 0}
    figures = RankFigures(nodes=("n1",) * ranks, region_ns=(1,) * ranks) if ranks > 1 else None
    return StoredTrial(Path(arm), TrialRecord(units=units, iterations=10, ranks=figures, **own))  # type: ignore[arg-type]


def scaling(
    ratio: float | None, ranks: int, units: float = 640, base_ranks: int = 1, effect: Effect = EFFECT
) -> Scaling | None:
    """The scaling of an arm that takes `ratio` of the time of a base that does 640 units."""
    progress = Progress()
    for one in (timed("base", base_ranks, 640), timed("arm", ranks, units)):
        progress.add(one)
    ends = (None, None) if ratio is None else (ratio * 0.8, ratio * 1.25)
    return scaling_of(effect, ratio, *ends, ArmRecords(progress, [PACK]))


def test_four_ranks_in_half_the_time_use_half_of_themselves() -> None:
    found = scaling(0.5, 4)
    assert found is not None
    assert (found.ranks, found.more, found.work) == (4, 4, Work.STRONG)
    assert found.efficiency == pytest.approx(0.5)
    assert (found.low, found.high) == (pytest.approx(0.4), pytest.approx(0.625))


def test_as_much_work_for_each_rank_is_weak_scaling() -> None:
    found = scaling(0.25, 4, units=4 * 640)
    assert found is not None and found.work is Work.WEAK
    assert found.efficiency == pytest.approx(1.0)


def test_work_that_grows_otherwise_has_no_name() -> None:
    found = scaling(0.5, 4, units=3 * 640)
    assert found is not None and found.work is Work.OTHER


def test_what_the_base_has_already_does_not_count() -> None:
    found = scaling(0.5, 4, base_ranks=2)
    assert found is not None and found.efficiency == pytest.approx(1.0)


@pytest.mark.parametrize(("ratio", "ranks", "base"), [(None, 4, 1), (0.5, 1, 1), (2.0, 1, 2), (0.5, 2, 2)])
def test_without_more_ranks_or_without_a_time_there_is_none(
    ratio: float | None, ranks: int, base: int
) -> None:
    assert scaling(ratio, ranks, base_ranks=base) is None


def test_an_effect_of_many_arms_has_none() -> None:
    many = EFFECT.model_copy(update={"contrast": {"arm": 0.5, "base": -0.5}})
    assert scaling(0.5, 4, effect=many) is None
