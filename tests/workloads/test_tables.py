"""Tables of toggles and claims are whole: witnesses, numbers like named numbers, and no claim twice."""

from __future__ import annotations

from types import ModuleType

import pytest
from tables import latentwire, probe1d, prover, spd

TABLES: dict[str, ModuleType] = {"probe1d": probe1d, "spd": spd, "prover": prover, "latentwire": latentwire}


@pytest.mark.parametrize("table", TABLES)
def test_no_claim_is_made_twice(table: str) -> None:
    seen = [
        (claim.section, claim.text, claim.kind, tuple(map(str, claim.arms))) for claim in TABLES[table].CLAIMS
    ]
    assert len(set(seen)) == len(seen)


@pytest.mark.parametrize("table", TABLES)
def test_every_level_off_the_baseline_names_what_it_changes(table: str) -> None:
    """Without a witness a level that does nothing would pass for one that gains nothing."""
    silent = {
        ("caching_allocator", "off"),  # the process either has the variable or not
        ("consistent_stop", "mismatch"),  # a baseline itself, wherever it is legal
    }
    for toggle in TABLES[table].TOGGLES:
        others = [*toggle.levels[1:], *([toggle.numbers.like] if toggle.numbers else [])]
        for level in others:
            assert level.witness or (toggle.name, level.value) in silent, f"{toggle.name}={level.value}"


@pytest.mark.parametrize("table", TABLES)
def test_numbers_have_what_the_named_numbers_have(table: str) -> None:
    """The unnamed neighbour of a named number must not slip past its requirements or its class."""
    for toggle in TABLES[table].TOGGLES:
        named = [level for level in toggle.levels[1:] if not isinstance(level.value, str)]
        for level in named if toggle.numbers else []:
            like = toggle.numbers.like  # type: ignore[union-attr]
            assert (level.requires, level.conflicts, level.refused) == (
                like.requires,
                like.conflicts,
                like.refused,
            )
            assert (level.parity, level.bounds, level.witness) == (like.parity, like.bounds, like.witness)
