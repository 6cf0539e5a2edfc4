"""How values and changes of a quantity read."""

from __future__ import annotations

import pytest

from perfsweep.pipelines.analysis.effect_result import QuantityResult
from perfsweep.pipelines.analysis.quantities.completed import (
    LAST_DROPPED,
    arm_table,
    change_text,
    chosen,
    effect_table,
)
from perfsweep.pipelines.analysis.quantities.cost import energy_text
from perfsweep.pipelines.analysis.quantities.quantity import Quantity
from perfsweep.pipelines.store.options import COLUMNS

QUANTITY = Quantity(
    key="energy",
    heading="energy",
    arm_heading="energy per {unit}",
    doc="joules",
    source=lambda measured: None,  # type: ignore[arg-type, return-value]
    text=energy_text,
)


@pytest.mark.parametrize(
    ("ends", "text"),
    [
        (None, ""),
        ((1.0, 2.0), "1\u00a0..\u00a02\u00a0J"),  # the unit once
        ((0.5, 2.0), "500\u00a0mJ\u00a0..\u00a02\u00a0J"),
    ],
)
def test_an_interval_has_its_unit_once_where_both_ends_share_it(
    ends: tuple[float, float] | None, text: str
) -> None:
    assert QUANTITY.interval_text(ends) == text


def test_an_interval_without_a_unit_has_none() -> None:
    plain = Quantity("n", "n", "n", "", lambda measured: None, lambda value: f"{value:g}")  # type: ignore[arg-type, return-value]
    assert plain.interval_text((1.0, 2.0)) == "1\u00a0..\u00a02"


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (QuantityResult(0.9, 0.8, 0.95), "1.11x less\n1.05\u00a0..\u00a01.25"),
        (QuantityResult(0.9), "1.11x less"),
        (QuantityResult(1.25, 1.2, 1.5), "1.25x more\n1.20\u00a0..\u00a01.50"),
        (QuantityResult(), ""),
        (QuantityResult(value=3.0, withheld="why"), ""),
        (QuantityResult(text="held back"), "held back"),
        (QuantityResult(0.9, 0.8, 0.95, text="zero"), "zero"),
    ],
)
def test_a_change_reads_with_its_interval_below_or_as_the_word_in_its_place(
    result: QuantityResult, text: str
) -> None:
    assert change_text(result) == text


def test_columns_of_a_quantity_come_last_and_are_dropped_first_of_what_is_not_needed() -> None:
    own = effect_table((QUANTITY,))[len(effect_table(())) :]
    assert [one.key for one in own] == [
        "energy",
        *(f"energy_{name}" for name in ("value", "ratio", "low", "high", "p", "rounds", "withheld")),
    ]
    assert (own[0].heading, own[0].drop, own[0].optional) == ("energy", LAST_DROPPED, True)
    arms = arm_table((QUANTITY,))[len(arm_table(())) :]
    assert [one.key for one in arms] == ["energy", "energy_low", "energy_high", "energy_comment"]
    assert arms[0].heading == "energy per {unit}"


def test_quantities_are_shown_in_the_order_in_which_they_were_chosen_and_once() -> None:
    keys = list(COLUMNS)
    assert [one.key for one in chosen(reversed(keys))] == keys[::-1]
    assert [one.key for one in chosen([keys[1], keys[0], keys[1]])] == [keys[1], keys[0]]
    assert chosen(["none such"]) == ()
