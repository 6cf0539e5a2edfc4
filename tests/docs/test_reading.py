"""The page of columns says what each column of the tables of effects and arms is."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from documented import ROOT

from perfsweep.pipelines.analysis.arm_results import ARMS
from perfsweep.pipelines.analysis.columns import Column, Where
from perfsweep.pipelines.analysis.effect_columns import EFFECTS
from perfsweep.pipelines.analysis.quantity import Quantity
from perfsweep.pipelines.analysis.quantity_results import QUANTITIES

PAGE = (ROOT / "docs" / "tables.md").read_text()
EFFECTS_PART, _, ARMS_PART = PAGE.partition("\n### The table of arms\n")
ARMS_PART = ARMS_PART.partition("\n### ")[0]


def explained(part: str) -> list[str]:
    """First cells of the rows of tables, each heading of a row by itself, without its key in brackets."""
    rows = [line.split("|")[1].strip() for line in part.splitlines() if line.startswith("| ")]
    parts = [one.partition(" (`")[0] for row in rows for one in row.split(", ")]
    return [*rows, *parts]


def headings(columns: Iterable[Column]) -> list[str]:
    return sorted({column.heading.format(unit="unit") for column in columns if column.where & Where.PEOPLE})


@pytest.mark.parametrize("heading", headings(EFFECTS))
def test_every_heading_of_effects_is_explained(heading: str) -> None:
    assert heading in explained(EFFECTS_PART)


@pytest.mark.parametrize("heading", headings(ARMS))
def test_every_heading_of_arms_is_explained(heading: str) -> None:
    assert heading in explained(ARMS_PART)


@pytest.mark.parametrize("quantity", QUANTITIES, ids=lambda one: one.key)
def test_every_column_that_may_be_chosen_is_explained(quantity: Quantity) -> None:
    assert quantity.heading in explained(PAGE.partition("\n## Files\n")[0])
