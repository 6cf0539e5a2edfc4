"""The tables of faults and cases: all of the lists are played, and a storm is drawn from its seed."""

from __future__ import annotations

import re
from itertools import islice

from storm.cases import CASES
from storm.faults import FAULTS
from storm.storm import planned, variant

EVERY = [FAULTS[name] for name in sorted(FAULTS)]


def first(seed: int, count: int = 400) -> list[tuple[str, float, float]]:
    return [(one.fault.name, one.after_s, one.lasts_s) for one in islice(planned(seed, EVERY), count)]


def test_every_number_of_the_lists_is_played() -> None:
    wanted = [f"F{n}" for n in range(1, 27)] + [f"D{n}" for n in range(1, 15)] + ["N1", "N2"]
    numbers = [match[0] for id in CASES if (match := re.match(r"[FDN]\d+", id))]
    assert list(dict.fromkeys(numbers)) == wanted, "in their order"
    begun = {name for case in CASES.values() for name in (*case.under, case.deed) if isinstance(name, str)}
    assert begun <= FAULTS.keys()


def test_the_same_seed_brings_the_same_storm_and_another_one_another() -> None:
    assert first(7) == first(7)
    assert first(7) != first(8)
    assert [variant(7, n) for n in range(20)] == [variant(7, n) for n in range(20)]


def test_every_fault_falls_in_some_storm_and_a_storm_of_20_minutes_has_room_for_400() -> None:
    falls = first(7)
    assert {name for name, _, _ in falls} == set(FAULTS)
    assert sum(after for _, after, _ in falls) < 20 * 60
    for name, _, lasts in falls:
        shortest, longest = FAULTS[name].seconds
        assert shortest <= lasts <= longest
