"""Cells and values of a quantity's columns."""

from __future__ import annotations

from typing import Any

import pytest

from perfsweep.pipelines.analysis.arm_results import ArmResult
from perfsweep.pipelines.analysis.columns import row_values
from perfsweep.pipelines.analysis.effect_result import EffectResult, QuantityResult
from perfsweep.pipelines.analysis.quantities.completed import arm_table, effect_table
from perfsweep.pipelines.analysis.quantities.quantity import Quantity
from perfsweep.pipelines.store.schema import Effect

NOTHING: Any = None
QUANTITY = Quantity("energy", "energy", "energy", "", lambda measured: NOTHING, lambda value: f"{value:g} J")
EFFECT = Effect(id="e", design="one_at_a_time", toggle="t", level="on", pairs=(("arm", "base"),))


def of_energy(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key.startswith("energy")}


def test_a_file_holds_all_of_a_change() -> None:
    found = QuantityResult(0.9, 0.8, 0.95, 0.01, 3.0, 6, withheld="why")
    result = EffectResult(EFFECT, "arm", "base", None, quantities={"energy": found})
    columns = effect_table((QUANTITY,))
    assert of_energy(row_values(columns, result)) == {
        "energy_value": 3.0,
        "energy_ratio": 0.9,
        "energy_low": 0.8,
        "energy_high": 0.95,
        "energy_p": 0.01,
        "energy_rounds": 6,
        "energy_withheld": "why",
    }
    bare = row_values(columns, EffectResult(EFFECT, "arm", "base", None))
    assert {key: value for key, value in of_energy(bare).items() if value} == {}


@pytest.mark.parametrize(
    ("fields", "cell", "values"),
    [
        ({}, "", (None, None, None, "")),
        ({"quantities": {"energy": 3.0}}, "3 J", (3.0, None, None, "")),
        ({"quantities": {"energy": 0.0}}, "0 J", (0.0, None, None, "")),
        (
            {"quantities": {"energy": 3.0}, "bounds": {"energy": (2.0, 4.0)}, "comments": {"energy": "idle"}},
            "3 J\n2\u00a0..\u00a04\u00a0J\nidle",
            (3.0, 2.0, 4.0, "idle"),
        ),
    ],
)
def test_an_arm_has_its_value_with_the_interval_and_a_comment_below(
    fields: dict, cell: str, values: tuple
) -> None:
    arm = ArmResult("arm", 6, 1.0, None, {}, **fields)
    columns = arm_table((QUANTITY,))
    assert next(one for one in columns if one.key == "energy").cell(arm) == cell
    assert tuple(of_energy(row_values(columns, arm)).values()) == values
