"""Logits of a step's actions: however lists are packed, each is the product of two states' values."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from perfsweep.workloads.prover.maths.greedy_choice import specials
from perfsweep.workloads.prover.maths.packing import CAP, Lists
from perfsweep.workloads.prover.maths.state_values import EveryState
from perfsweep.workloads.prover.variants import TOGGLES, arm
from perfsweep.workloads.prover.variants.policy_rows import BUDGET_PER_ROW
from perfsweep.workloads.prover.variants.screening import DELTA

BASE = {toggle.name: toggle.levels[0].value for toggle in TOGGLES}

ROWS, ATOMS, WIDTH = 12, 2, 5
DRAW = torch.Generator().manual_seed(3)
PROJECTION = torch.randn(ATOMS * 3, WIDTH, generator=DRAW)
CONSTANTS = torch.arange(3 * ATOMS * 3).view(3, ATOMS, 3)


def values(states: Tensor) -> Tensor:
    return states.flatten(1).float() @ PROJECTION / 4


def dots(found: Tensor, keys: Tensor, offset: Tensor, owner: Tensor) -> Tensor:
    return (found * keys[owner]).sum(1) + offset[owner]


def rough(states: Tensor, keys: Tensor, offset: Tensor, owner: Tensor) -> Tensor:
    """As in 16 bits: wrong in the first decimal."""
    return dots(values(states), keys, offset, owner) + 0.1


POLICY: Any = SimpleNamespace(
    keys=lambda current: (2 * current, current[:, 0]), dots=dots, state_logits=rough
)


def scorer_of(policy_rows: str, reuse: bool, once: bool, skip: bool = False, screen: bool = False) -> Any:
    """An arm that can only score."""
    on = {"obs_reuse": reuse, "const_states": once, "forced_skip": skip, "screen16": screen}
    own = {**BASE, "policy_rows": policy_rows, **{name: "on" for name, chosen in on.items() if chosen}}
    made: Any = object.__new__(arm(own))
    made.policy, made.values, made.ends = POLICY, EveryState(values), CONSTANTS
    if screen:
        made.low, made.screened, made.rescored, made.worst = POLICY, 0, 0, None
    return made


def states(*shape: int) -> Tensor:
    return torch.randint(0, 6, (*shape, ATOMS, 3), generator=DRAW)


def step(counts: list[int]) -> tuple[Any, Lists, Lists]:
    """Rows with lists of these lengths, as grids and one behind the other. Row 0 has a proof, 1 has ended."""
    count = torch.tensor(counts)
    current, rows = states(len(counts)), torch.arange(len(counts))
    proof, done = rows == 0, rows == 1
    mask = torch.arange(CAP).expand(len(counts), CAP) < count[:, None]
    grid = states(len(counts), CAP)
    rest = torch.zeros(0, dtype=torch.int64)
    padded = Lists(grid, rest, mask, rest, count, proof, proof)
    ragged = Lists(grid[mask], rest, mask[mask], rows.repeat_interleave(count), count, proof, proof)
    made: Any = SimpleNamespace(batch=len(counts), done=done, current=current, value=values(current))
    return made, padded, ragged


def expected(rows: Any, lists: Lists) -> list[list[float]]:
    """Row by row: logits of successors, then that of the special action."""
    found = []
    for number in range(rows.batch):
        keys, offset = POLICY.keys(values(rows.current[number : number + 1]))
        kind = 0 if lists.proof[number] else 1 if not lists.sizes[number] else 2
        own = torch.cat([lists.states[number][lists.mask[number]], CONSTANTS[kind : kind + 1]])
        found.append((values(own) @ keys[0] + offset[0]).tolist())
    return found


def logits_of(scorer: Any, rows: Any, lists: Lists) -> tuple[list[list[float]], Any, dict[str, Any]]:
    tally: dict[str, Any] = {}
    scorer.begin_job()
    scores = scorer.score(rows, lists, tally)
    real = [[logit for logit in row if logit > -torch.inf] for row in scores.logits.tolist()]
    return real, scores, tally


COUNTS = [0, 3, 0, CAP, 1, *[7] * (ROWS - 5)]
OPTIONS = [(reuse, once, skip) for reuse in (False, True) for once in (False, True) for skip in (False, True)]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("name", ["padded", "row_budget", "ragged"])
def test_every_packing_gives_the_same_logits(name: str, options: tuple[bool, bool, bool]) -> None:
    reuse, once, skip = options
    rows, padded, ragged = step(COUNTS)
    scorer = scorer_of(name, reuse, once, skip)
    found, scores, tally = logits_of(scorer, rows, ragged if name == "ragged" else padded)
    assert not scores.deferred.any()
    wanted = expected(rows, padded)
    forced = specials(padded).forced
    for number, (own, right) in enumerate(zip(found, wanted, strict=True)):
        # A budget leaves out rows that have ended, and a skipped row has one action: whatever its logit.
        if not (name == "row_budget" and rows.done[number]) and not (skip and forced[number]):
            assert own == pytest.approx(right, rel=1e-4, abs=1e-4)
        assert len(own) == len(right)
    for number, length in enumerate(COUNTS):
        if length and not (name == "row_budget" and rows.done[number]):
            right = values(padded.states[number, :length])
            assert torch.allclose(scores.values[scores.slot[number, :length]], right)
    beside = (2 - reuse - once) * (ROWS - (2 if skip else 0))
    if name == "padded":
        assert tally["states_padded"] == ROWS * CAP + (2 - reuse - once) * ROWS
    if name == "ragged":
        assert tally["states_padded"] == tally["states_wanted"] == sum(COUNTS) + beside
    if name == "row_budget":
        ended = COUNTS[1] + (2 - reuse - once)
        assert int(tally["states_wanted"]) == sum(COUNTS) + beside - ended
        assert tally["states_padded"] == BUDGET_PER_ROW * ROWS


@pytest.mark.parametrize("length", [BUDGET_PER_ROW, BUDGET_PER_ROW + 1, 2 * BUDGET_PER_ROW])
def test_rows_wait_once_those_before_them_have_filled_the_budget(length: int) -> None:
    # Row 0 has only its proof, and row 1 has ended: neither takes room.
    rows, padded, _ = step([0, CAP, *[length] * (ROWS - 2)])
    scorer = scorer_of("row_budget", reuse=True, once=True, skip=True)
    found, scores, tally = logits_of(scorer, rows, padded)
    fit = BUDGET_PER_ROW * ROWS // length
    assert (~scores.deferred[2:]).tolist() == [number < fit for number in range(ROWS - 2)]
    right = expected(rows, padded)
    assert all(
        found[at] == pytest.approx(right[at], rel=1e-4, abs=1e-4)
        for at in range(2, ROWS)
        if not scores.deferred[at]
    )
    assert int(tally["states_wanted"]) == length * (ROWS - 2)


def test_few_rows_have_room_for_128_states() -> None:
    rows, padded, _ = step([0, 0, CAP])
    scorer = scorer_of("row_budget", reuse=True, once=True, skip=True)
    _, scores, tally = logits_of(scorer, rows, padded)
    assert tally["states_padded"] == 128
    assert scores.deferred.tolist() == [False, False, CAP > 128]


@pytest.mark.parametrize("name", ["padded", "ragged"])
def test_what_is_near_the_best_is_scored_again_and_the_rest_is_as_rough_as_it_was(name: str) -> None:
    rows, padded, ragged = step(COUNTS)
    scorer = scorer_of(name, reuse=True, once=True, screen=True)
    found, _, _ = logits_of(scorer, rows, ragged if name == "ragged" else padded)
    again = 0
    for own, right in zip(found, expected(rows, padded), strict=True):
        *successors, last = right
        best = max([last, *(logit + 0.1 for logit in successors)])
        near = [logit + 0.1 >= best - DELTA for logit in successors]
        again += sum(near)
        rough_or_exact = [logit + 0.1 * (not exact) for logit, exact in zip(successors, near, strict=True)]
        assert own == pytest.approx([*rough_or_exact, last], rel=1e-4, abs=1e-4)
    assert 0 < again < sum(COUNTS), "some are near and some are not, or nothing is tested"
    assert scorer.rescored == again
    assert scorer.screened == (ROWS * CAP if name == "padded" else sum(COUNTS))
    assert scorer.screening_error() == pytest.approx(0.1 / DELTA, rel=1e-3)
