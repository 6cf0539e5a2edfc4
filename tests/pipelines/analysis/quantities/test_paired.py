"""A quantity that every timing trial has: its median for an arm, its ratio within rounds for an effect."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from perfsweep.pipelines.analysis.effect_result import QuantityResult
from perfsweep.pipelines.analysis.quantities.quantity import Measured, Paired, Withheld, per_trial, recorded
from perfsweep.pipelines.store.schema import Effect

EFFECT = Effect(id="e", design="one_at_a_time", toggle="t", level="on", pairs=(("arm", "base"),))
NO_ROUND = "no round is finished"


@dataclass
class Record:
    """What of a trial's record quantities are read from."""

    arm: str
    round: int | None
    quantities: dict[str, float]
    units: float = 10.0
    pack: str = "p000"
    withheld: dict[str, str] = field(default_factory=dict)

    @property
    def draw(self) -> int | None:
        return self.round


def measured(*records: Record) -> Measured:
    trials: Any = [SimpleNamespace(record=one) for one in records]
    manifest: Any = SimpleNamespace(sweep=None)
    return Measured(manifest, None, trials, None)  # type: ignore[arg-type]


def joules(**arms: list[float | None]) -> list[Record]:
    """A record for each round of an arm, with joules of one unit; None: it was measured without them."""
    return [
        Record(arm, number, {} if value is None else {"energy_j": 10 * value})
        for arm, values in arms.items()
        for number, value in enumerate(values)
    ]


def energy(*records: Record) -> Paired:
    source = per_trial("energy", recorded("energy_j"))(measured(*records))
    assert isinstance(source, Paired)
    return source


def test_an_arm_has_the_median_of_its_rounds_by_the_unit() -> None:
    assert energy(*joules(arm=[2.0, 8.0, 3.0])).of_arm("arm") == 3.0


def test_a_share_of_another_kind_may_be_read() -> None:
    read = recorded("energy_j", lambda trial: 4.0)
    found = per_trial("energy", read)(measured(*joules(arm=[2.0])))
    assert found.of_arm("arm") == 5.0


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (Record("arm", 0, {}), "the trials were measured without it"),
        (Record("arm", 0, {}, withheld={"energy_j": "no counter"}), "no counter"),
        (Record("arm", 0, {}, withheld={"other": "no counter"}), "the trials were measured without it"),
        (Record("other", 0, {}), NO_ROUND),
    ],
)
def test_an_arm_without_values_says_why(record: Record, reason: str) -> None:
    assert energy(record).of_arm("arm") == Withheld(reason)


def test_a_value_that_some_rounds_lack_is_that_of_the_others() -> None:
    assert energy(*joules(arm=[2.0, None, 4.0])).of_arm("arm") == 3.0


def test_an_effect_is_the_ratio_within_rounds_whatever_rounds_do() -> None:
    found = energy(*joules(base=[1.0, 3.0, 9.0], arm=[2.0, 6.0, 18.0])).of_effect(EFFECT)
    assert found.ratio == pytest.approx(2.0)
    assert (found.value, found.rounds, found.withheld) == (6.0, 3, "")
    assert found.low == pytest.approx(2.0) and found.high == pytest.approx(2.0)


def test_an_effect_has_the_interval_and_p_of_its_rounds() -> None:
    up = [1.02, 0.98, 1.01, 0.99, 1.0]
    found = energy(*joules(base=[1.0] * 5, arm=[2 * one for one in up])).of_effect(EFFECT)
    assert found.low is not None and found.high is not None and found.p is not None
    assert found.low < 2.0 < found.high
    assert math.sqrt(found.low * found.high) == pytest.approx(found.ratio)
    assert found.p < 0.001


def test_one_round_gives_a_ratio_without_an_interval() -> None:
    found = energy(*joules(base=[1.0], arm=[2.0])).of_effect(EFFECT)
    assert (found.ratio, found.low, found.high) == (pytest.approx(2.0), None, None)


@pytest.mark.parametrize(
    ("arms", "value", "withheld"),
    [
        ({"arm": [1.0]}, 1.0, NO_ROUND),
        ({"base": [1.0]}, None, NO_ROUND),
        ({"arm": [1.0], "base": [None]}, 1.0, "the trials were measured without it"),
        ({"arm": [0.0], "base": [1.0]}, 0.0, "energy is zero, which has no ratio"),
        ({"arm": [1.0], "base": [0.0]}, 1.0, "energy is zero, which has no ratio"),
        ({"arm": [1.0, None], "base": [None, 1.0]}, 1.0, "no round measured both the arm and its base"),
    ],
)
def test_an_effect_without_a_ratio_says_why_and_keeps_the_arms_own_value(
    arms: dict, value: float | None, withheld: str
) -> None:
    assert energy(*joules(**arms)).of_effect(EFFECT) == QuantityResult(value=value, withheld=withheld)


def test_trials_outside_rounds_count_for_the_arm_alone() -> None:
    looks = [Record(arm, None, {"energy_j": 10.0}) for arm in ("arm", "base")]
    found = energy(*looks)
    assert found.of_arm("arm") == 1.0
    assert found.of_effect(EFFECT).ratio is None


def test_cells_are_those_of_arms_that_are_above_zero_in_every_round() -> None:
    found = energy(*joules(base=[1.0, 2.0], arm=[0.0, 2.0])).positive_cells()
    assert {arm: [one.value for one in cells] for arm, cells in found.items()} == {"base": [1.0, 2.0]}
