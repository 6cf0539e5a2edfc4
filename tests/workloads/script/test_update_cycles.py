"""Which update of several optimisers ends an iteration: the last of the cycle that they go through."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import pytest

from perfsweep.workloads.script.marks import PATIENCE, UpdateCycle


def ends(order: str, optimizers: str) -> list[int]:
    """Updates behind which an iteration ends, counted from one; `optimizers` are those that exist."""
    known: Any = {name: SimpleNamespace(name=name) for name in optimizers}
    seen, found = list[str](), list[int]()
    watched: Any = SimpleNamespace(made=list(known.values()))
    cycle = UpdateCycle(watched, lambda: found.append(len(seen)))
    for name in order:
        seen.append(name)
        cycle((id(known[name]),))
    return found


@pytest.mark.parametrize(
    ("order", "found"),
    [
        ("ABABABAB", [4, 6, 8]),
        ("AABAABAAB", [6, 9]),
        ("ABBABBABB", [6, 9]),
        ("BBAABAABAAB", [7, 10]),  # what came before the cycle belongs to none
        ("AAAABAABAAB", [8, 11]),
        ("ABCABCABC", [6, 9]),
    ],
)
def test_a_cycle_is_known_once_it_has_repeated_itself(order: str, found: list[int]) -> None:
    assert ends(order, "ABC"[: len(set(order))]) == found


def test_every_update_of_an_optimiser_that_is_alone_is_one_and_beside_an_idle_one_after_a_while() -> None:
    assert ends("AAA", "A") == [1, 2, 3]
    assert ends("A" * (PATIENCE + 2), "AB") == [PATIENCE, PATIENCE + 1, PATIENCE + 2]


def test_updates_without_any_order_are_taken_one_by_one_in_the_end() -> None:
    longest = 4 * PATIENCE
    thue_morse = [number.bit_count() % 2 for number in range(longest + 2)]
    order = "".join("ABC"[after - before] for before, after in itertools.pairwise(thue_morse))
    assert ends(order, "ABC") == [longest, longest + 1], "no part of it is followed by its like"


def test_the_cycle_of_many_optimisers_is_as_long_as_they_are_many() -> None:
    many = [chr(number) for number in range(200, 200 + 90)]
    order = "".join(many)
    assert ends(3 * order, order) == [180, 270]


def test_what_is_updated_in_one_call_is_one_update() -> None:
    found = list[int]()
    watched: Any = SimpleNamespace(made=range(70))
    cycle = UpdateCycle(watched, lambda: found.append(1))
    for _ in range(3):
        cycle(tuple(range(70)))
    assert len(found) == 3
