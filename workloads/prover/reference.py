"""The naive path of the Prover report, as upstream had it (DeepProofLog/Batched_Env), by its behaviour.

Read it first: all rows of a slab walk in lock step for a fixed number of steps. A step pairs the first goal
of every row with all facts and rules of its predicate, packs what unifies into padded lists, sends every
place of them through the policy, and moves each row to its best successor. It knows no toggle. Each toggle is
a class in `variants` that replaces some of these methods; an arm is this class with those of its levels
before it.

B rows, A atoms of r arguments; lists have CAP places for successors, and the special action TRUE, FALSE or
END of each row comes last.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from perfsweep.workloads.api import Levels, NullClock
from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.prover.counters import Tally
from perfsweep.workloads.prover.data.corruption import Candidates, Corruptor, Source
from perfsweep.workloads.prover.data.hashing import hash_states
from perfsweep.workloads.prover.data.knowledge import ATOMS, MAX_DEPTH, PREDICATE_RULES, KnowledgeBase
from perfsweep.workloads.prover.maths.episodes import Move, Results, Rows, advance, fresh_rows
from perfsweep.workloads.prover.maths.greedy_choice import FLOAT32_DOUBT, Scores, Specials, choose, specials
from perfsweep.workloads.prover.maths.packing import (
    CAP,
    Lists,
    Packed,
    Pruner,
    canonical,
    gathered,
    grid_lists,
    left_aligned_by_sort,
    proved,
    rank_by_sort,
    sources,
)
from perfsweep.workloads.prover.maths.policy import Policy, PolicyShape, Weights, constant_states
from perfsweep.workloads.prover.maths.slab_size import SlabMemory
from perfsweep.workloads.prover.maths.state_values import EveryState
from perfsweep.workloads.prover.maths.unify import Pairs, Raw, Unifier, padded_pairs

WIDE_BODIES = 10
"""Bodies' worth of padding that upstream packed: A + 10 Bmax slots, 26 for bodies of two atoms."""


@dataclass(frozen=True)
class Queue:
    """Where slabs get candidates and leave outcomes.

    Attributes
    ----------
    size : rows of a slab, None for all candidates at once; budget : bytes that a slab may need
    log : takes the counts of each iteration
    """

    source: Source
    results: Results
    log: Callable[[Tally], None]
    size: int | None
    budget: int


class Reference:
    """The naive path. It takes an arm's levels for its variants, and looks at none of them.

    Parameters
    ----------
    levels : of all toggles
    phase : marks phases

    Raises
    ------
    ConfigError
        Ids do not fit the arm's integer type, or the data do not fit its kernel.
    """

    ragged = False
    """Whether lists lie end to end, and not in grids."""
    static = False
    """Whether shapes must not depend on the data, which variants ask."""
    folded = False
    """Whether the policy's first product lies in its tables, and its last is applied late."""
    tf32 = False
    """Whether products may round to TF32."""

    def __init__(
        self,
        levels: Levels,
        kb: KnowledgeBase,
        weights: Weights,
        shape: PolicyShape,
        phase: Callable[[str], AbstractContextManager[Any]] = NullClock.phase,
    ) -> None:
        self.levels, self.kb, self.shape, self.phase = levels, kb, shape, phase
        self.weights = {name: tensor.to(kb.facts.device) for name, tensor in weights.items()}
        if kb.largest_id > torch.iinfo(self.dtype).max:
            narrow = str(self.dtype).removeprefix("torch.")
            raise ConfigError(
                f"toggles.index_dtype={narrow}: ids reach {kb.largest_id}; use toggles.index_dtype=int32"
            )
        self.build()

    # What is made once.

    def build(self) -> None:
        """Make what the steps use."""
        self.policy = self.network()
        self.values = self.valued()
        self.ends = constant_states(self.kb.vocabulary).to(self.kb.facts.device, self.dtype)
        self.memory = self.predicted()
        self.build_expansion()

    def build_expansion(self) -> None:
        """Make what lists of successors take."""
        self.constants = len(self.kb.vocabulary.constants)
        self.unifier, self.prune = Unifier(self.kb, self.slots, self.dtype), Pruner(self.kb)

    @property
    def dtype(self) -> torch.dtype:
        """Integer type of packed states."""
        return torch.int64

    @property
    def slots(self) -> int:
        """W: slots of a raw successor, with upstream's padding."""
        return ATOMS + WIDE_BODIES * max(self.kb.longest_body, 2)

    @property
    def rules_of_a_row(self) -> int:
        """Rules that a row is paired with: 100, or more where a predicate has more."""
        return max(PREDICATE_RULES, self.kb.largest_group)

    @property
    def facts_of_a_row(self) -> int:
        """Facts that a row is paired with: as many as the largest predicate has."""
        return self.kb.largest_predicate

    @property
    def states_of_a_row(self) -> int:
        """States of a row that go through the policy: every place, the special action, the current state."""
        return CAP + 2

    @property
    def doubt(self) -> float:
        """Relative rounding error of logits, by which a choice counts as ambiguous."""
        return FLOAT32_DOUBT

    def network(self, low: bool = False) -> Policy:
        """The policy; with `low` its products run in bfloat16."""
        return Policy(self.weights, self.shape, self.folded, low)

    def valued(self) -> EveryState:
        """What evaluates states: each as often as it occurs."""
        return EveryState(self.policy.values)

    def predicted(self) -> SlabMemory:
        """Memory that rows need."""
        columns, width = self.kb.facts.shape[1], max(self.shape.width, self.shape.embedding)
        pairs = self.rules_of_a_row + self.facts_of_a_row
        return SlabMemory(pairs, self.slots, columns, self.dtype.itemsize, self.states_of_a_row, width)

    def counted(self) -> dict[str, float]:
        """Counts that no step's tally has."""
        return {"states_evaluated": self.values.evaluated}

    def warmed_up(self) -> None:
        """Evaluations of the warm-up are no work of any job."""
        self.values.evaluated = 0

    def screening_error(self) -> float:
        """Largest error of a logit in 16 bits, in units of what is scored again: none is in 16 bits."""
        return 0.0

    # One step: expand, score, choose, move.

    def step(self, rows: Rows) -> tuple[Rows, Tally]:
        """Rows one action further, and what was counted."""
        tally: Tally = {}
        with self.phase("expand"):
            lists, no_room = self.expand(rows, tally)
        with self.phase("policy"):
            scores = self.score(rows, lists, tally)
        with self.phase("select"):
            return self.select(rows, lists, scores, no_room, tally), tally

    def expand(self, rows: Rows, tally: Tally) -> tuple[Lists, Tensor]:
        """Lists of all rows by resolution, and which rows found no room for their pairs [B]."""
        goals = self.goals(rows)
        by_rule, by_fact = self.rule_pairs(goals), self.fact_pairs(goals)
        tally["rule_pairs"], tally["fact_pairs"] = by_rule.owner.numel(), by_fact.owner.numel()
        raw = [
            self.unifier.with_rules(rows.current, by_rule),
            self.unifier.with_facts(rows.current, rows.excluded, by_fact),
        ]
        return self.pack(rows, raw, tally), by_rule.deferred | by_fact.deferred

    def goals(self, rows: Rows) -> Tensor:
        """Goals to resolve [B, 1+r]: the first of each row, finished or not."""
        return rows.current[:, 0]

    def rule_pairs(self, goals: Tensor) -> Pairs:
        """All rules of the goal's predicate, padded."""
        predicate = goals[:, 0].long()
        return padded_pairs(
            (self.kb.rule_start[predicate], self.kb.rule_count[predicate]), self.rules_of_a_row
        )

    def fact_pairs(self, goals: Tensor) -> Pairs:
        """All facts of the goal's predicate, padded to the largest predicate."""
        predicate = goals[:, 0].long()
        return padded_pairs(
            (self.kb.fact_start[predicate], self.kb.fact_count[predicate]), self.facts_of_a_row
        )

    def pack(self, rows: Rows, parts: list[Raw], tally: Tally) -> Lists:
        """Prune, prove, pack, rename, remove doubles and what was visited; `parts` by rules, by facts."""
        pruned = [self.prune(raw, rows.excluded) for raw in parts]
        proof = proved(rows, parts, pruned)
        ranks, total = self.ranks([found.alive for found in pruned], [raw.owner for raw in parts], rows.batch)
        tally["sorts"] = 2
        tally["bytes_packed"] = sum(raw.states.numel() * raw.states.element_size() for raw in parts)
        overflow = (total > CAP) & ~proof
        total = torch.where(proof, 0, total.clamp(max=CAP))
        source = sources(parts, pruned, ranks, proof, *self.places(total))
        wide, keep, owner, mask = gathered(parts, pruned, source)
        states = canonical(self.left_aligned(wide, keep), self.constants)
        hashes = hash_states(states, self.kb.vocabulary.base)
        return self.lists(rows, Packed(states, hashes, owner, mask, proof, overflow))

    def ranks(self, alive: list[Tensor], owners: list[Tensor], rows: int) -> tuple[list[Tensor], Tensor]:
        """Place of each survivor among its owner's, and survivors by row [B]."""
        return rank_by_sort(alive, owners, rows)

    def left_aligned(self, states: Tensor, keep: Tensor) -> Tensor:
        """Kept atoms moved to the left: [n, W, 1+r] to [n, A, 1+r]."""
        return left_aligned_by_sort(states, keep)

    def places(self, total: Tensor) -> tuple[Tensor, int]:
        """Where the list of each row begins [B], and places of all lists."""
        return torch.arange(len(total), device=total.device) * CAP, len(total) * CAP

    def lists(self, rows: Rows, packed: Packed) -> Lists:
        """Packed successors as grids."""
        return grid_lists(rows, packed)

    def score(self, rows: Rows, lists: Lists, tally: Tally) -> Scores:
        """Logits of all places of every list, filled or not."""
        special = specials(lists)
        states = lists.states.flatten(0, 1)
        successors, others = self.evaluated(rows, states, self.others(rows, special))
        tally["states_padded"] = tally["states_wanted"] = len(states) + len(others)
        keys, offset, last = self.products(rows, special, others)
        logits, values, slot = self.logits(lists, successors, keys, offset, last)
        assert slot is not None
        logits = torch.cat([logits, last[:, None]], 1)
        return Scores(logits, torch.zeros_like(rows.done), values, slot)

    def others(self, rows: Rows, special: Specials) -> list[Tensor]:
        """States [B, A, 1+r] to be valued with the successors."""
        return [*self.end_states(special), *self.current_states(rows)]

    def end_states(self, special: Specials) -> list[Tensor]:
        """The special action of each row."""
        return [self.ends[special.kind]]

    def current_states(self, rows: Rows) -> list[Tensor]:
        """Where each row is."""
        return [rows.current]

    def evaluated(self, rows: Rows, states: Tensor, others: list[Tensor]) -> tuple[Tensor, Tensor]:
        """Values of the successors' `states` [n, .] and of `others`, end to end."""
        values = self.values(torch.cat([states, *others]) if others else states)
        return values[: len(states)], values[len(states) :]

    def products(self, rows: Rows, special: Specials, others: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Keys [B, .], their offsets [B], logits of special actions [B], from the values of `others`."""
        parts = list(others.split(rows.batch))
        ends, current = self.end_values(special, parts), self.current_values(rows, parts)
        keys, offset = self.policy.keys(current)
        return keys, offset, (keys * ends).sum(1) + offset

    def end_values(self, special: Specials, parts: list[Tensor]) -> Tensor:
        """Values of special actions [B, .]."""
        return parts[0]

    def current_values(self, rows: Rows, parts: list[Tensor]) -> Tensor:
        """Values of current states [B, .]."""
        return parts[-1]

    def logits(
        self, lists: Lists, values: Tensor, keys: Tensor, offset: Tensor, last: Tensor
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Logits of successors [B, CAP], values, and which of these is each place's [B, CAP]."""
        rows = len(keys)
        found = torch.bmm(values.view(rows, CAP, -1), keys[:, :, None])[:, :, 0] + offset[:, None]
        found = torch.where(lists.mask, found, -torch.inf)
        return found, values, torch.arange(rows * CAP, device=keys.device).view(rows, CAP)

    def select(self, rows: Rows, lists: Lists, scores: Scores, no_room: Tensor, tally: Tally) -> Rows:
        """Choose, and move all rows that had room."""
        special = specials(lists)
        choice = choose(scores.logits, special.forced, self.doubt)
        deferred = no_room | scores.deferred
        last = scores.slot.shape[1]
        at_end, column = choice.column == last, choice.column.clamp(max=max(last - 1, 0))
        state, state_hash, action = self.picked(rows, lists, column)
        move = Move(
            action=torch.where(at_end, lists.sizes, action),
            outcome=torch.where(at_end, special.kind + 1, 0),
            state=state,
            state_hash=state_hash,
            log_prob=choice.log_prob,
            ambiguous=choice.ambiguous,
            acted=~deferred,
            value=self.kept_value(rows, scores, column),
        )
        live = ~rows.done & ~deferred
        tally["useful_row_steps"] = live.sum()
        tally["overflow"] = (lists.overflow & live).sum()
        tally["states_real"] = torch.where(live, lists.sizes, 0).sum()
        tally["deferred"] = (deferred & ~rows.done).sum()
        return advance(rows, move)

    def picked(self, rows: Rows, lists: Lists, column: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """State, hash and action number of a column of each row; anything where the row has none."""
        flat = torch.arange(rows.batch, device=column.device) * CAP + column
        action = lists.mask.cumsum(1).gather(1, column[:, None])[:, 0] - 1
        return lists.states.flatten(0, 1)[flat], lists.hashes.flatten()[flat], action

    def kept_value(self, rows: Rows, scores: Scores, column: Tensor) -> Tensor | None:
        """Values of the chosen successors [B, .] for the next step: none are kept."""
        return None

    # One job: slabs of candidates, each for a fixed number of steps.

    def begin_job(self) -> None:
        """Forget what the last job kept."""
        self.values.forget()

    def slab_size(self, search: Callable[[], int]) -> int | None:
        """Rows of a slab, None for all; `search` finds the best size, and nothing asks it."""
        size = self.levels["slab_size"]
        return None if size == "all" else int(size)

    def step_sizes(self, slab: int) -> list[int]:
        """Rows that steps of a slab may get."""
        return [slab]

    def warm_up_sizes(self, slab: int | None) -> list[int]:
        """Rows of the steps before the first job: two, whatever the slab is."""
        return [2]

    def draws(self, corruptor: Corruptor, queries: Tensor) -> Iterator[Candidates]:
        """Candidates of queries [Q, 1+r] by blocks: a loop, a query at a time when a slab needs it."""
        for number in range(len(queries)):
            yield corruptor.one_by_one(queries[number : number + 1])

    def schedule(self, queue: Queue) -> Iterator[None]:
        """One slab after the other, each until it may end; yields after every iteration."""
        while (rows := self.fill(queue)) is not None:
            padded = rows.batch - int((rows.number >= 0).sum())
            steps, over = 0, False
            while not over:
                before = rows.done
                rows, tally = self.iteration(rows)
                tally["padded_rows"] = padded
                tally["slabs"] = int(steps == 0)
                tally["done"] = (rows.done & ~before).sum()
                steps += 1
                over = self.over(rows, steps)
                queue.log(tally)
                yield
            queue.results.store(rows)

    def fill(self, queue: Queue) -> Rows | None:
        """The rows of the next candidates; None when no candidate is left."""
        atoms, numbers = queue.source.take(queue.size)
        if not len(atoms):
            return None
        self.memory.check(len(atoms), queue.budget)
        rows = self.start(atoms, numbers)
        missing = (queue.size or 0) - rows.batch
        return self.filled_up(rows, missing) if missing > 0 else rows

    def start(self, atoms: Tensor, numbers: Tensor) -> Rows:
        """Episodes of depth 0 for candidates [B, 1+r] of these numbers [B]."""
        return fresh_rows(atoms, numbers, self.dtype, self.kb.vocabulary.base, self.first_values)

    def first_values(self, states: Tensor) -> Tensor:
        """Values of the first states that are kept for reuse: none."""
        return torch.zeros(len(states), 0, device=states.device)

    def finished_rows(self, count: int) -> Rows:
        """Rows that belong to no candidate."""
        device = self.kb.facts.device
        atoms = torch.zeros(count, 1 + self.kb.vocabulary.arity, dtype=torch.int64, device=device)
        rows = self.start(atoms, torch.full((count,), -1, device=device))
        return rows._replace(done=torch.ones_like(rows.done))

    def filled_up(self, rows: Rows, missing: int) -> Rows:
        """The last slab, which lacks some rows: it stays smaller than the others."""
        return rows

    def iteration(self, rows: Rows) -> tuple[Rows, Tally]:
        """One step of a slab: of all rows, finished or not."""
        return self.step_all(rows)

    def step_all(self, rows: Rows) -> tuple[Rows, Tally]:
        """One step of all rows, and its time on the host."""
        active, batch = (~rows.done).sum(), rows.batch
        start = time.perf_counter()
        rows, tally = self.step(rows)
        tally["step_ms"] = 1e3 * (time.perf_counter() - start)
        tally["active"] = active
        tally["row_steps"] = batch
        return rows, tally

    def over(self, rows: Rows, steps: int) -> bool:
        """Whether a slab may end: after all steps, unless rows had to wait for room and need more."""
        return steps >= MAX_DEPTH and bool(rows.done.all())
