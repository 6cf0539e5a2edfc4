"""One step of all rows of a slab: expand, score, choose, advance."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor

from perfsweep.workloads.api import NullClock
from perfsweep.workloads.prover.counters import Tally
from perfsweep.workloads.prover.maths.clause_pairing import Pairs
from perfsweep.workloads.prover.maths.episodes import Move, Rows, advance
from perfsweep.workloads.prover.maths.greedy_choice import FLOAT32_DOUBT, choose
from perfsweep.workloads.prover.maths.packing import CAP, Lists, Packer
from perfsweep.workloads.prover.maths.scoring import Scorer, Scores, specials
from perfsweep.workloads.prover.maths.unify import Unifier

Phase = Callable[[str], AbstractContextManager[Any]]
Pairing = Callable[[Tensor], Pairs]


class TorchExpander:
    """Lists of successors by tensor operations, pair by pair.

    Parameters
    ----------
    budget : whether pairs share a fixed room, which finished rows must not hold while others wait
    """

    def __init__(
        self, rules: Pairing, facts: Pairing, unifier: Unifier, packer: Packer, budget: bool = False
    ) -> None:
        self.rules, self.facts, self.unifier, self.packer = rules, facts, unifier, packer
        self.budget = budget

    def __call__(self, rows: Rows, tally: Tally) -> tuple[Lists, Tensor]:
        """Lists of all rows, and which rows found no room for their pairs [B]."""
        goals = rows.current[:, 0]
        if self.budget:
            goals = torch.where(rows.done[:, None], torch.zeros_like(goals), goals)
        by_rule, by_fact = self.rules(goals), self.facts(goals)
        tally["rule_pairs"], tally["fact_pairs"] = by_rule.owner.numel(), by_fact.owner.numel()
        raw = [
            self.unifier.with_rules(rows.current, by_rule),
            self.unifier.with_facts(rows.current, rows.excluded, by_fact),
        ]
        return self.packer(rows, raw, tally), by_rule.deferred | by_fact.deferred


Expander = Callable[[Rows, Tally], tuple[Lists, Tensor]]


class Step:
    """One iteration for any number of rows; static where its parts are, to compile as one graph.

    Parameters
    ----------
    doubt : relative rounding error of logits, by which a choice counts as ambiguous
    """

    def __init__(
        self,
        expand: Expander,
        scorer: Scorer,
        ragged: bool,
        doubt: float = FLOAT32_DOUBT,
        phase: Phase = NullClock.phase,
    ) -> None:
        self.expand, self.scorer, self.ragged = expand, scorer, ragged
        self.doubt, self.phase = doubt, phase

    def __call__(self, rows: Rows) -> tuple[Rows, Tally]:
        """Rows one action further, and what was counted."""
        tally: Tally = {}
        with self.phase("expand"):
            lists, no_room = self.expand(rows, tally)
        with self.phase("policy"):
            scores = self.scorer(rows, lists, tally)
        with self.phase("select"):
            special = specials(lists)
            choice = choose(scores.logits, special.forced, self.doubt)
            deferred = no_room | scores.deferred
            move = self._move(rows, lists, scores, choice, special.kind, deferred)
            live = ~rows.done & ~deferred
            self._count(tally, lists, live)
            tally["deferred"] = (deferred & ~rows.done).sum()
            return advance(rows, move, self.scorer.reuse), tally

    def _move(
        self, rows: Rows, lists: Lists, scores: Scores, choice: Any, kind: Tensor, deferred: Tensor
    ) -> Move:
        """What was chosen, looked up in the lists."""
        last = scores.slot.shape[1]
        is_special = choice.column == last
        column = choice.column.clamp(max=max(last - 1, 0))
        state, state_hash, action = self._picked(rows, lists, column)
        return Move(
            action=torch.where(is_special, lists.sizes, action),
            outcome=torch.where(is_special, kind + 1, 0),
            state=state,
            state_hash=state_hash,
            log_prob=choice.log_prob,
            ambiguous=choice.ambiguous,
            acted=~deferred,
            value=self._value(rows, scores.slot, scores.values, column),
        )

    def _picked(self, rows: Rows, lists: Lists, column: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """State, hash and action number of a column of each row; anything where the row has none."""
        if self.ragged:
            if not len(lists.states):
                return rows.current, rows.history[:, 0], column
            start = lists.sizes.cumsum(0) - lists.sizes
            at = (start + column).clamp(max=len(lists.states) - 1)
            return lists.states[at], lists.hashes[at], column
        flat = torch.arange(rows.batch, device=column.device) * CAP + column
        action = lists.mask.cumsum(1).gather(1, column[:, None])[:, 0] - 1
        return lists.states.flatten(0, 1)[flat], lists.hashes.flatten()[flat], action

    def _value(self, rows: Rows, slot: Tensor, values: Tensor, column: Tensor) -> Tensor:
        if not self.scorer.reuse or not slot.shape[1] or not len(values):
            return rows.value
        return values[slot.gather(1, column[:, None])[:, 0].clamp(max=len(values) - 1)]

    def _count(self, tally: Tally, lists: Lists, live: Tensor) -> None:
        tally["useful_row_steps"] = live.sum()
        tally["overflow"] = (lists.overflow & live).sum()
        tally["states_real"] = torch.where(live, lists.sizes, 0).sum()
