"""Quantities of the arms and effects of a sweep, and the sentences on what could not be had."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from perfsweep.pipelines.analysis.effect_result import EffectResult, QuantityResult
from perfsweep.pipelines.analysis.quantities.completed import QuantityResults
from perfsweep.pipelines.analysis.quantities.quantity import NO_ROUND, Measured, Quantity, Withheld
from perfsweep.pipelines.statistics.verdicts import ReasonCode, Verdict
from perfsweep.pipelines.store.schema import Effect

EFFECT = Effect(id="e", design="one_at_a_time", toggle="t", level="on", pairs=(("a", "b"),))
CHANGE = QuantityResult(0.9, 0.8, 0.95, 0.01, 3.0, 6)


@dataclass
class Stated:
    """A source of values that are stated, by arm, and one change for all effects."""

    values: dict[str, float | Withheld]
    change: QuantityResult = CHANGE
    comments: dict[str, str] = field(default_factory=dict)
    bounds: dict[str, tuple[float, float]] = field(default_factory=dict)

    def of_arm(self, arm: str) -> float | Withheld:
        return self.values[arm]

    def of_effect(self, effect: Effect) -> QuantityResult:
        return self.change

    def bounds_of(self, arm: str) -> tuple[float, float] | None:
        return self.bounds.get(arm)


class Plain:
    """A source with neither comments nor intervals."""

    def of_arm(self, arm: str) -> float | Withheld:
        return 1.0

    def of_effect(self, effect: Effect) -> QuantityResult:
        return QuantityResult()


def quantity(key: str, source: object, **fields: Any) -> Quantity:
    return Quantity(key, f"the {key}", key, "", lambda measured: source, str, **fields)  # type: ignore[arg-type, return-value]


def results(*quantities: Quantity) -> QuantityResults:
    manifest: Any = SimpleNamespace(arm_names={arm: arm.upper() for arm in "abcdefgh"})
    measured: Any = Measured(manifest, None, (), None)  # type: ignore[arg-type]
    return QuantityResults(quantities, measured)


LACKING = Withheld("no counter")


def test_an_arm_has_what_could_be_had() -> None:
    found = results(
        quantity("energy", Stated({"a": 3.0}, comments={"a": "idle"}, bounds={"a": (2.0, 4.0)})),
        quantity("cost", Stated({"a": LACKING})),
        quantity("plain", Plain()),
    )
    assert found.of_arm("a") == {"energy": 3.0, "plain": 1.0}
    assert found.bounds_of("a") == {"energy": (2.0, 4.0)}
    assert found.comments_on("a") == {"energy": "idle"}


def result(code: ReasonCode, **fields: Any) -> EffectResult:
    verdict = fields.pop("verdict", Verdict.HELD_BACK)
    return EffectResult(EFFECT, "a", "b", verdict, code=code, **fields)


@pytest.mark.parametrize(
    ("code", "held"),
    [
        (ReasonCode.CALLED_FASTER, False),
        (ReasonCode.ALL_DISTURBED, False),
        (ReasonCode.NO_TIME, True),
        (ReasonCode.RESULTS_DIFFER, True),  # by what the quantity itself says
    ],
)
def test_a_change_is_held_back_by_what_its_quantity_names_and_by_a_missing_time(
    code: ReasonCode, held: bool
) -> None:
    barred = quantity("cost", Stated({}), held_back_by=frozenset({ReasonCode.RESULTS_DIFFER}))
    found = results(barred).of_effect(result(code))
    assert (found["cost"].ratio is None) is held


@pytest.mark.parametrize(
    ("fields", "word", "withheld"),
    [
        ({"verdict": Verdict.DIFFERENT}, "different", "not compared: different"),
        ({"verdict": None, "outcome": "inert"}, "inert", "not compared: inert"),
        ({"held_back": "too few", "note": "a note"}, "too noisy", "not compared: too noisy, too few"),
        ({"note": "a note"}, "too noisy", "not compared: too noisy, a note"),
    ],
)
def test_in_the_place_of_a_change_that_is_held_back_stands_the_verdict_and_the_value_stays(
    fields: dict, word: str, withheld: str
) -> None:
    found = results(quantity("cost", Stated({}))).of_effect(result(ReasonCode.NO_TIME, **fields))
    assert found["cost"] == QuantityResult(value=3.0, rounds=6, text=word, withheld=withheld)


def test_a_change_that_could_not_be_had_keeps_its_own_reason() -> None:
    lacking = QuantityResult(withheld="no counter")
    found = results(quantity("cost", Stated({}, lacking))).of_effect(result(ReasonCode.NO_TIME))
    assert found["cost"] == lacking


def notes(values: dict, effects: dict[str, QuantityResult], *more: Quantity, **fields: Any) -> list[str]:
    found = results(quantity("energy", Stated(values), **fields), *more)
    named = {name: {"energy": one, **{other.key: CHANGE for other in more}} for name, one in effects.items()}
    return found.notes(named, values)


def test_arms_that_lack_a_quantity_are_named_with_the_reason() -> None:
    assert notes({"a": LACKING, "b": 1.0, "c": LACKING}, {}) == ["the energy of A, C: no counter"]
    assert notes({"a": LACKING, "b": LACKING}, {}) == ["the energy: no counter"], "all of them need no names"
    assert notes({"a": LACKING, "b": Withheld("broken"), "c": 1.0}, {}) == [
        "the energy of A: no counter",
        "the energy of B: broken",
    ]
    assert notes({"a": 1.0}, {"x": CHANGE}) == []


def test_five_arms_are_named_and_the_rest_counted() -> None:
    values: dict[str, Any] = {"h": 1.0, **dict.fromkeys("abcdefg", LACKING)}
    assert notes(values, {}) == ["the energy of A, B, C, D, E and 2 more: no counter"]


def test_effects_that_lack_a_quantity_are_named_unless_their_arms_were() -> None:
    zero, without = QuantityResult(withheld="it is zero"), QuantityResult(withheld="no counter")
    assert notes({"a": 1.0, "b": 1.0}, {"x": zero, "y": CHANGE}) == ["the energy of x: it is zero"]
    assert notes({"a": 1.0, "b": LACKING}, {"x": without, "y": CHANGE}) == ["the energy of B: no counter"]
    assert notes({"a": 1.0}, {"x": QuantityResult(withheld=NO_ROUND.reason), "y": CHANGE}) == []


def test_remarks_stand_before_what_is_lacking_and_are_said_once() -> None:
    remarks = {"remarks": lambda measured: ("from counters",)}
    other = quantity("cost", Stated({"a": 1.0}), **remarks)
    assert notes({"a": LACKING}, {}, other, **remarks) == ["from counters", "the energy: no counter"]
