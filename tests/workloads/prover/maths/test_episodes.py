"""What one move does to the rows of a slab, row by row."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from perfsweep.workloads.prover.data.hashing import hash_states
from perfsweep.workloads.prover.data.knowledge import ATOMS, MAX_DEPTH
from perfsweep.workloads.prover.maths.episodes import Move, Rows, advance, fresh_rows

BASE = 50


@pytest.fixture
def rows() -> Rows:
    atoms = torch.tensor([[1, 2, 3], [1, 4, 5], [2, 6, 7]])
    numbers = torch.tensor([10, 11, 12])
    return fresh_rows(atoms, numbers, torch.int32, BASE, lambda states: states[:, 0, 1:].float())


def move(rows: Rows, outcome: list[int], **given: list[Any]) -> Move:
    count = rows.batch
    return Move(
        action=torch.tensor(given.get("action", [0] * count)),
        outcome=torch.tensor(outcome),
        state=torch.full_like(rows.current, 9),
        state_hash=torch.arange(100, 100 + count),
        log_prob=torch.tensor(given.get("log_prob", [-0.5] * count)),
        ambiguous=torch.tensor(given.get("ambiguous", [False] * count)),
        acted=torch.tensor(given.get("acted", [True] * count)),
        value=torch.full((count, 2), 7.0),
    )


def test_an_episode_begins_with_its_query_alone(rows: Rows) -> None:
    assert rows.batch == 3
    assert rows.current.shape == (3, ATOMS, 3)
    assert rows.current[:, 0].tolist() == rows.excluded.tolist() == [[1, 2, 3], [1, 4, 5], [2, 6, 7]]
    assert not rows.current[:, 1:].any()
    assert rows.current.dtype == rows.excluded.dtype == torch.int32
    assert rows.history[:, 0].tolist() == hash_states(rows.current, BASE).tolist()
    assert rows.history.shape == (3, MAX_DEPTH + 1)
    assert rows.stored.tolist() == [1, 1, 1]
    assert rows.depth.tolist() == [0, 0, 0]
    assert not rows.done.any()
    assert not rows.success.any()
    assert not rows.ambiguous.any()
    assert rows.log_prob.tolist() == [0, 0, 0]
    assert rows.actions.shape == (3, MAX_DEPTH)
    assert (rows.actions == -1).all()
    assert rows.number.tolist() == [10, 11, 12]
    assert rows.value.tolist() == [[2, 3], [4, 5], [6, 7]]


def test_rows_are_taken_put_back_and_joined(rows: Rows) -> None:
    some = rows.take(torch.tensor([2, 0]))
    assert some.number.tolist() == [12, 10]
    back = rows.put(torch.tensor([0, 1]), some)
    assert back.number.tolist() == [12, 10, 12]
    assert rows.number.tolist() == [10, 11, 12]
    assert Rows.joined([rows, some]).number.tolist() == [10, 11, 12, 12, 10]
    assert Rows.joined([rows]) is rows


def test_a_row_that_goes_on_takes_the_new_state_and_remembers_it(rows: Rows) -> None:
    after = advance(rows, move(rows, [0, 0, 0], action=[3, 4, 5], ambiguous=[True, False, False]))
    after = advance(after, move(rows, [0, 0, 0], action=[6, 7, 8]))
    assert (after.current == 9).all()
    assert after.history[:, 1].tolist() == after.history[:, 2].tolist() == [100, 101, 102]
    assert torch.equal(after.history[:, 0], rows.history[:, 0])
    assert after.stored.tolist() == [3, 3, 3]
    assert after.depth.tolist() == [2, 2, 2]
    assert not after.done.any()
    assert after.actions[:, :3].tolist() == [[3, 6, -1], [4, 7, -1], [5, 8, -1]]
    assert after.log_prob.tolist() == [-1.0, -1.0, -1.0]
    assert after.ambiguous.tolist() == [True, False, False]
    assert (after.value == 7).all()


def test_true_succeeds_false_and_end_fail_and_none_keeps_a_new_state(rows: Rows) -> None:
    after = advance(rows, move(rows, [1, 2, 3]))
    assert after.done.tolist() == [True, True, True]
    assert after.success.tolist() == [True, False, False]
    assert after.depth.tolist() == [1, 1, 1]
    assert torch.equal(after.current, rows.current)
    assert torch.equal(after.history, rows.history)
    assert after.stored.tolist() == [1, 1, 1]
    assert torch.equal(after.value, rows.value)


def test_rows_that_are_done_or_had_to_wait_keep_everything(rows: Rows) -> None:
    rows = rows._replace(done=torch.tensor([True, False, False]))
    after = advance(rows, move(rows, [1, 1, 0], acted=[True, False, True], ambiguous=[True] * 3))
    for name, old, new in zip(Rows._fields, rows, after, strict=True):
        assert torch.equal(old[:2], new[:2]), name
    assert after.depth.tolist() == [0, 0, 1]


def test_the_last_step_allowed_ends_a_row_without_success(rows: Rows) -> None:
    for step in range(1, MAX_DEPTH + 1):
        rows = advance(rows, move(rows, [0, 0, 0], action=[step] * 3))
        assert bool(rows.done.any()) == (step == MAX_DEPTH)
    assert rows.done.all()
    assert not rows.success.any()
    assert rows.actions[0].tolist() == list(range(1, MAX_DEPTH + 1))
    assert rows.stored.tolist() == [MAX_DEPTH + 1] * 3


def test_values_move_along_only_where_they_are_kept(rows: Rows) -> None:
    after = advance(rows, move(rows, [0, 0, 0])._replace(value=None))
    assert after.value is rows.value
