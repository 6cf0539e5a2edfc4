"""Which rows are stepped, when a slab ends, and what fills it: by a step that ends rows at known depths."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from perfsweep.workloads.prover.counters import Tally
from perfsweep.workloads.prover.data.knowledge import MAX_DEPTH
from perfsweep.workloads.prover.maths.episodes import Rows
from perfsweep.workloads.prover.reference import Queue, Reference
from perfsweep.workloads.prover.variants import TOGGLES, arm

BASE = {toggle.name: toggle.levels[0].value for toggle in TOGGLES}


def scheduler(step: Any = None, static: bool = False, **levels: str) -> Reference:
    """An arm that can only schedule: its rows have no value, and `step` is given."""
    made: Any = object.__new__(arm({**BASE, **levels}))
    made.kb = SimpleNamespace(
        vocabulary=SimpleNamespace(base=50, arity=2), facts=SimpleNamespace(device=torch.device("cpu"))
    )
    made.memory, made.step, made.static = SimpleNamespace(check=lambda rows, budget: None), step, static
    return made


class Bites:
    """Candidates (1, n, n) of the numbers 0 to `count` - 1, as a source gives them."""

    def __init__(self, count: int) -> None:
        self.left = torch.arange(count)

    def take(self, count: int | None) -> tuple[Tensor, Tensor]:
        count = len(self.left) if count is None else count
        taken, self.left = self.left[:count], self.left[count:]
        return torch.stack([torch.ones_like(taken), taken + 1, taken + 1], 1), taken


class Kept:
    """Numbers of the candidates that were stored, in that order."""

    def __init__(self) -> None:
        self.numbers: list[int] = []

    def store(self, rows: Rows) -> None:
        assert rows.done.all()
        self.numbers += [number for number in rows.number.tolist() if number >= 0]


def finishing(depths: list[int]) -> Any:
    """A step after which a candidate is done once it has made as many steps as `depths` gives its number."""

    def step(rows: Rows) -> tuple[Rows, Tally]:
        depth = rows.depth + ~rows.done
        last = torch.tensor([*depths, 0])[rows.number]
        return rows._replace(depth=depth, done=rows.done | (depth >= last)), {}

    return step


def queue_of(count: int, size: int | None = 2) -> tuple[Any, list[Tally]]:
    log: list[Tally] = []
    return Queue(Bites(count), Kept(), log.append, size, budget=1), log  # type: ignore[arg-type]


def numbers(log: list[Tally]) -> list[dict[str, int]]:
    """What the schedule counted, without what every step has."""
    every = ("step_ms", "active")
    return [{name: int(value) for name, value in tally.items() if name not in every} for tally in log]


ALL, NONE = torch.tensor([True, True]), torch.tensor([True, False])


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        ("off", MAX_DEPTH),
        ("sync", 2),  # as soon as all rows are done
        ("every_k", 4),  # at the fourth iteration it looks
        ("async_lag1", 3),  # it looks at what the iteration before has sent
    ],
)
def test_a_slab_whose_rows_are_done_after_two_iterations_ends_after(level: str, expected: int) -> None:
    made = scheduler(early_exit_all=level)
    for _ in range(2):  # as in the first slab, so in the next
        done = [NONE, *[ALL] * MAX_DEPTH]
        overs = [made.over(SimpleNamespace(done=flags), steps) for steps, flags in enumerate(done, 1)]  # type: ignore[arg-type]
        assert overs.index(True) + 1 == expected


@pytest.mark.parametrize("level", ["off", "sync", "every_k", "async_lag1"])
def test_after_all_steps_a_slab_goes_on_until_its_rows_are_done(level: str) -> None:
    made, rows = scheduler(early_exit_all=level), SimpleNamespace(done=NONE)
    assert not any(made.over(rows, steps) for steps in range(1, MAX_DEPTH + 4))  # type: ignore[arg-type]
    rows.done = ALL
    assert made.over(rows, MAX_DEPTH + 4)  # type: ignore[arg-type]


@pytest.mark.parametrize(("size", "batches"), [(3, [3, 2]), (None, [5])])
def test_a_slab_is_checked_by_the_rows_that_it_takes(size: int | None, batches: list[int]) -> None:
    made, (queue, _) = scheduler(), queue_of(5, size)
    checked: list[tuple[int, int]] = []
    made.memory = SimpleNamespace(check=lambda *given: checked.append(given))  # type: ignore[assignment]
    filled = [rows.batch for rows in iter(lambda: made.fill(queue), None)]
    assert filled == batches and checked == [(rows, 1) for rows in batches]
    assert made.warm_up_sizes(40) == [2]
    exact, compact = ({"warmup": "exact", "skip_done": level} for level in ("none", "compact"))
    assert [scheduler(**exact).warm_up_sizes(slab) for slab in (40, None)] == [[40], [2]]
    assert scheduler(**compact).warm_up_sizes(40) == [16, 32, 40]


def test_slabs_follow_one_another_and_each_row_is_counted_once() -> None:
    queue, log = queue_of(3)
    made = scheduler(finishing([1, 3, 2]), early_exit_all="sync", pad_to_slab="done_row")
    assert len(list(made.schedule(queue))) == len(log)
    assert numbers(log) == [
        {"padded_rows": 0, "slabs": 1, "done": 1, "row_steps": 2},
        {"padded_rows": 0, "slabs": 0, "done": 0, "row_steps": 2},
        {"padded_rows": 0, "slabs": 0, "done": 1, "row_steps": 2},
        {"padded_rows": 1, "slabs": 1, "done": 0, "row_steps": 2},
        {"padded_rows": 1, "slabs": 0, "done": 1, "row_steps": 2},
    ]
    assert queue.results.numbers == [0, 1, 2]


@pytest.mark.parametrize("fixed", [False, True])
def test_finished_slots_take_the_next_candidates(fixed: bool) -> None:
    queue, log = queue_of(4)
    list(scheduler(finishing([1, 3, 1, 2]), static=fixed, refill="queue").schedule(queue))
    assert queue.results.numbers == [0, 2, 1, 3]
    free = int(fixed)  # a slab that keeps its size carries the empty slot along
    assert numbers(log) == [
        {"refilled": 1, "done": 1, "slabs": 1, "padded_rows": 0, "row_steps": 2},
        {"refilled": 1, "done": 1, "slabs": 0, "padded_rows": 0, "row_steps": 2},
        {"refilled": 1 - free, "done": 1, "slabs": 0, "padded_rows": 0, "row_steps": 2},
        {"refilled": 1 - free, "done": 1, "slabs": 0, "padded_rows": free, "row_steps": 1 + free},
    ]
