"""The page on reading an answer says what each column of the table of effects is."""

from __future__ import annotations

import pytest
from documented import ROOT

from pipelines.analysis.columns import Where
from pipelines.analysis.effect_columns import EFFECTS

TABLE = (
    (ROOT / "docs" / "reading.md").read_text().partition("## The table of effects")[2].partition("\n## ")[0]
)
EXPLAINED = [
    heading
    for line in TABLE.splitlines()
    if line.startswith("| ")
    for heading in line.split("|")[1].strip().split(", ")
]


@pytest.mark.parametrize(
    "heading", sorted({column.heading for column in EFFECTS if column.where & Where.PEOPLE})
)
def test_every_heading_that_people_read_is_explained(heading: str) -> None:
    assert heading in EXPLAINED
