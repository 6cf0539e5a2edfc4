"""Where iterations end, by the order of what a script does."""

from __future__ import annotations

from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from perfsweep.workloads.script import explicit_marks, marks


def ends(order: str, made: str = "") -> list[int]:
    """Numbers of the updates that end an iteration, where optimisers of these names exist."""
    watched: Any = SimpleNamespace(made=set(made or order))
    found: list[int] = []
    optimisers = {name: object() for name in order}
    cycle = marks.UpdateCycle(watched, lambda: found.append(number))
    for number, name in enumerate(order, 1):  # noqa: B007 - the mark reads it
        cycle((id(optimisers[name]),))
    return found


@pytest.mark.parametrize(
    ("order", "found"), [("ABABABAB", [4, 6, 8]), ("AAAAABAAAAABAAAAAB", [12, 18]), ("CABABABAB", [])]
)
def test_a_cycle_of_updates_ends_an_iteration_once_it_has_been_seen_twice(order: str, found: list) -> None:
    assert ends(order) == found


def test_an_optimiser_that_goes_on_alone_is_taken_at_its_word() -> None:
    assert ends("A" * 34, made="AB") == [32, 33, 34]


def test_an_order_without_a_cycle_is_given_up() -> None:
    order = "".join("AB"[bit] for bit in map(int, "".join(f"{n:b}" for n in range(40))))
    without = "C" + order[:129]
    assert ends(without) == [128, 129, 130]


def test_the_first_batch_begins_an_iteration_and_every_other_ends_one() -> None:
    found: list[str] = []
    batch = marks.NextBatch(lambda: found.append("end"))
    for name in "abc":
        batch()
        found.append(name)
    with torch.no_grad():  # an evaluation
        batch()
    assert found == ["a", "end", "b", "end", "c"]


def test_of_several_marks_every_nth_counts() -> None:
    found: list[int] = []
    every = marks.Every(3, lambda: found.append(number))
    for number in range(1, 8):  # noqa: B007 - the mark reads it
        every()
    assert found == [3, 6]


@pytest.mark.parametrize(
    ("iteration", "listened", "told"),
    [
        *(("optimizer.step", {"over"}, "an optimiser's step"), ("loader", {"before_batch"}, "a batch")),
        *(("backward", {"after_backward"}, "backward"), ("marks", set(), "perfsweep.mark()")),
        ("train:step", set(), "train:step"),
    ],
)
def test_a_kind_of_end_is_listened_to_where_it_is_seen(iteration: str, listened: set, told: str) -> None:
    heard: Any = SimpleNamespace(over=[], after_backward=[], before_batch=[])
    with ExitStack() as undo:
        marks.install(iteration, heard, ends, undo)  # type: ignore[arg-type]
        assert {name for name, listeners in vars(heard).items() if listeners} == listened
        assert explicit_marks.arrived is (ends if iteration == "marks" else None)
    assert explicit_marks.arrived is None and marks.ends_of(iteration) == told
