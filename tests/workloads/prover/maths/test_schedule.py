"""Which rows are stepped, when a slab ends, and what fills it: by a step that ends rows at known depths."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from perfsweep.workloads.prover.counters import Tally
from perfsweep.workloads.prover.data.knowledge import MAX_DEPTH
from perfsweep.workloads.prover.maths.episodes import RowFactory, Rows
from perfsweep.workloads.prover.maths.schedule import (
    AllRows,
    CompactRows,
    ExitTest,
    MaskedRows,
    Slab,
    bucket_sizes,
    queue_fed,
    slab_by_slab,
)


@pytest.fixture(scope="module")
def factory() -> RowFactory:
    kb: Any = SimpleNamespace(vocabulary=SimpleNamespace(base=50, arity=2))
    return RowFactory(kb, torch.int32, lambda states: states.new_zeros(len(states), 0))


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


def slab_of(factory: RowFactory, count: int, **given: Any) -> tuple[Any, list[Tally]]:
    log: list[Tally] = []
    fields: dict[str, Any] = {"size": 2, "pad": "off", "fixed": False, "check": lambda rows: None, **given}
    return Slab(factory, Bites(count), Kept(), log.append, **fields), log  # type: ignore[arg-type]


def numbers(log: list[Tally]) -> list[dict[str, int]]:
    return [{name: int(value) for name, value in tally.items()} for tally in log]


@pytest.mark.parametrize(
    ("rows", "sizes"), [(1, [1]), (16, [16]), (17, [16, 17]), (32, [16, 32]), (100, [16, 32, 64, 100])]
)
def test_buckets_are_powers_of_two_from_sixteen_and_the_slab_itself(rows: int, sizes: list[int]) -> None:
    assert bucket_sizes(rows) == sizes


def some_rows(factory: RowFactory, count: int, done: list[int]) -> Rows:
    rows = factory.start(*Bites(count).take(None))
    rows.done[done] = True
    return rows


def test_every_row_is_stepped_or_those_done_are_blank_then(factory: RowFactory) -> None:
    seen: list[Rows] = []

    def step(rows: Rows) -> tuple[Rows, Tally]:
        seen.append(rows)
        return rows, {"fact_pairs": 7}

    rows = some_rows(factory, 3, done=[0, 2])
    _, tally = AllRows(step)(rows)
    assert numbers([tally]) == [{"fact_pairs": 7, "row_steps": 3}]
    _, tally = MaskedRows(step)(rows)
    assert numbers([tally]) == [{"fact_pairs": 7, "row_steps": 3, "masked_rows": 2}]
    assert torch.equal(seen[0].current, rows.current)
    assert seen[1].current.any(2).any(1).tolist() == [False, True, False]
    assert torch.equal(seen[1].current[1], rows.current[1])


@pytest.mark.parametrize(("active", "bucket"), [(20, 32), (16, 16), (3, 16), (40, 40)])
def test_active_rows_alone_are_stepped_in_the_smallest_bucket(
    factory: RowFactory, active: int, bucket: int
) -> None:
    rows = some_rows(factory, 40, done=list(range(40 - active)))
    stepped: list[Rows] = []

    def step(part: Rows) -> tuple[Rows, Tally]:
        stepped.append(part)
        return part._replace(depth=part.depth + 5), {}

    after, tally = CompactRows(step, factory)(rows)
    assert tally["row_steps"] == bucket == stepped[0].batch
    assert stepped[0].number.tolist() == [*range(40 - active, 40), *[-1] * (bucket - active)]
    assert stepped[0].done.tolist() == [False] * active + [True] * (bucket - active)
    assert after.depth.tolist() == [0] * (40 - active) + [5] * active
    assert torch.equal(after.number, rows.number)


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
    exit_test = ExitTest(level)
    for _ in range(2):  # as in the first slab, so in the next
        exit_test.begin()
        done = [NONE, *[ALL] * MAX_DEPTH]
        overs = [exit_test.over(SimpleNamespace(done=flags)) for flags in done]  # type: ignore[arg-type]
        assert overs.index(True) + 1 == expected


def test_after_all_steps_a_slab_goes_on_until_its_rows_are_done() -> None:
    exit_test = ExitTest("off")
    rows: Any = SimpleNamespace(done=NONE)
    assert not any(exit_test.over(rows) for _ in range(MAX_DEPTH + 3))
    rows.done = ALL
    assert exit_test.over(rows)


@pytest.mark.parametrize(
    ("pad", "expected", "done"),
    [("off", [0, 1, 2], [False] * 3), ("done_row", [0, 1, 2, -1, -1], [False] * 3 + [True] * 2)],
)
def test_a_slab_is_padded_by_finished_rows(
    factory: RowFactory, pad: str, expected: list[int], done: list[bool]
) -> None:
    slab, _ = slab_of(factory, 3, size=5, pad=pad)
    rows = slab.fill()
    assert rows.number.tolist() == expected
    assert rows.done.tolist() == done
    assert slab.fill() is None


def test_a_slab_is_checked_by_the_rows_that_it_takes_before_they_are_made(factory: RowFactory) -> None:
    checked: list[int] = []
    slab, _ = slab_of(factory, 5, size=3, check=checked.append)
    assert [slab.fill().batch, slab.fill().batch, slab.fill()] == [3, 2, None]
    assert checked == [3, 2]
    slab, _ = slab_of(factory, 5, size=None, check=checked.append)
    assert slab.fill().batch == checked[-1] == 5


def test_slabs_follow_one_another_and_each_row_is_counted_once(factory: RowFactory) -> None:
    slab, log = slab_of(factory, 3, size=2, pad="done_row")
    assert len(list(slab_by_slab(slab, finishing([1, 3, 2]), ExitTest("sync")))) == len(log)
    assert numbers(log) == [
        {"padded_rows": 0, "slabs": 1, "done": 1},
        {"padded_rows": 0, "slabs": 0, "done": 0},
        {"padded_rows": 0, "slabs": 0, "done": 1},
        {"padded_rows": 1, "slabs": 1, "done": 0},
        {"padded_rows": 1, "slabs": 0, "done": 1},
    ]
    assert slab.results.numbers == [0, 1, 2]


@pytest.mark.parametrize("fixed", [False, True])
def test_finished_slots_take_the_next_candidates(factory: RowFactory, fixed: bool) -> None:
    slab, log = slab_of(factory, 4, size=2, fixed=fixed)
    list(queue_fed(slab, finishing([1, 3, 1, 2])))
    assert slab.results.numbers == [0, 2, 1, 3]
    free = [0, 0, 0, int(fixed)]  # a slab that keeps its size carries the empty slot along
    assert numbers(log) == [
        {"refilled": 1, "done": 1, "slabs": 1, "padded_rows": free[0]},
        {"refilled": 1, "done": 1, "slabs": 0, "padded_rows": free[1]},
        {"refilled": 0, "done": 1, "slabs": 0, "padded_rows": free[2]},
        {"refilled": 0, "done": 1, "slabs": 0, "padded_rows": free[3]},
    ]
