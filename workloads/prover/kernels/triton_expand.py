"""A row's expansion in one Triton program: look-up, substitution, fact probe, names, hash, loop check.

Finished rows return at once. A program walks over its goal's rules and then over its facts, one clause at a
time, with the up to `RAW` atoms of a successor in registers, and writes what survives to its own CAP places;
distinct, unvisited successors are told from the rest by their hashes. Lists come out as grids and are packed
after one another where the arm wants them so.
"""

# Triton's compiler, not Python, gives constexpr arguments and results of helpers their types.
# pyright: reportArgumentType=false, reportGeneralTypeIssues=false

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from perfsweep.workloads.prover.counters import Tally
from perfsweep.workloads.prover.data.knowledge import ATOMS, MAX_DEPTH, FactSet, KnowledgeBase
from perfsweep.workloads.prover.maths.episodes import Rows
from perfsweep.workloads.prover.maths.packing import CAP, Lists

SLOTS = 16
"""Atoms of a raw successor that a program holds: A + Bmax - 1 at most, as a power of two."""
PLACES = 128
"""CAP as a power of two."""


@triton.jit
def _mix(x):
    x = x + (-7046029254386353131)
    x = (x ^ ((x >> 30) & 0x3FFFFFFFF)) * (-4658895280553007687)
    x = (x ^ ((x >> 27) & 0x1FFFFFFFFF)) * (-7723592293110705685)
    return x ^ ((x >> 31) & 0x1FFFFFFFF)


@triton.jit
def _lower_bound(keys_ptr, low, high, wanted):
    while low < high:
        middle = (low + high) // 2
        if tl.load(keys_ptr + middle) < wanted:
            low = middle + 1
        else:
            high = middle
    return low


@triton.jit
def _pick(vector, slots, place):
    return tl.sum(tl.where(slots == place, vector, 0), 0)


@triton.jit
def _offer(
    p, a, b, slots, own, base, constants, table_ptr, bits, multiplier, probes, states_ptr, hashes_ptr, row,
    count,
    proof, overflow, A: tl.constexpr, PLACE_COUNT: tl.constexpr, SLOT_COUNT: tl.constexpr,
):  # fmt: skip
    """Prune and test a raw successor, write it to the row's next place: new count, proof, overflow."""
    real = p > 0
    key = (p * base + a) * base + b
    slot = ((key * multiplier) >> (64 - bits)) & ((1 << bits) - 1)
    known = tl.zeros_like(real)
    for probe in range(probes):
        at = (slot + probe) & ((1 << bits) - 1)
        known = known | (tl.load(table_ptr + at, mask=real, other=-1) == key)
    ground = (a <= constants) & (b <= constants)
    keep = real & ((key == own) | ~(ground & known))
    left = tl.sum(keep.to(tl.int64), 0)
    proof = tl.where(left == 0, 1, proof)
    fits = (left > 0) & (left <= A)
    overflow = tl.where(fits & (count >= PLACE_COUNT), 1, overflow)
    if fits & (count < PLACE_COUNT):
        # Names by first appearance, reading row by row, and the hash on the way.
        names = tl.zeros((SLOT_COUNT,), tl.int64)
        named = a * 0
        number = tl.sum(named, 0)
        h = number
        for place in range(SLOT_COUNT):
            here = _pick(keep.to(tl.int64), slots, place)
            if here > 0:
                x, y = _pick(a, slots, place), _pick(b, slots, place)
                if x > constants:
                    seen = tl.sum(tl.where(names == x, slots + 1, 0), 0)
                    names = tl.where((seen == 0) & (slots == number), x, names)
                    number = tl.where(seen == 0, number + 1, number)
                    x = constants + tl.where(seen == 0, number, seen)
                if y > constants:
                    seen = tl.sum(tl.where(names == y, slots + 1, 0), 0)
                    names = tl.where((seen == 0) & (slots == number), y, names)
                    number = tl.where(seen == 0, number + 1, number)
                    y = constants + tl.where(seen == 0, number, seen)
                a = tl.where(slots == place, x, a)
                b = tl.where(slots == place, y, b)
                h = _mix(h ^ ((_pick(p, slots, place) * base + x) * base + y))
        out = states_ptr + (row * PLACE_COUNT + count) * A * 3 + (tl.cumsum(keep.to(tl.int64), 0) - 1) * 3
        tl.store(out, p, mask=keep)
        tl.store(out + 1, a, mask=keep)
        tl.store(out + 2, b, mask=keep)
        tl.store(hashes_ptr + row * PLACE_COUNT + count, h)
        count += 1
    return count, proof, overflow


@triton.jit
def _with_rules(
    state, goal_p, goal_a, goal_b, slots, own, heads_ptr, bodies_ptr, body_length_ptr, rule_start_ptr,
    rule_count_ptr,
    longest, base, constants, table_ptr, bits, multiplier, probes, states_ptr, hashes_ptr, row, count,
    proof, overflow,
    A: tl.constexpr, PLACE_COUNT: tl.constexpr, S: tl.constexpr,
):  # fmt: skip
    """Offer body and rest for every rule whose head unifies with the goal."""
    first_rule = tl.load(rule_start_ptr + goal_p)
    for offset in range(tl.load(rule_count_ptr + goal_p)):
        rule = first_rule + offset
        head_a = tl.load(heads_ptr + rule * 3 + 1)
        head_b = tl.load(heads_ptr + rule * 3 + 2)
        length = tl.load(body_length_ptr + rule)
        twice = (head_a == head_b) & (goal_a != goal_b)
        bind_b = twice & (goal_b > constants)
        bind_a = twice & (goal_b <= constants) & (goal_a > constants)
        source = tl.where(bind_b, goal_b, tl.where(bind_a, goal_a, 0))
        target = tl.where(bind_b, goal_a, goal_b)
        x = tl.where(twice, target, goal_a)
        y = tl.where(twice, target, goal_b)
        shapes = ((head_a == 0) == (goal_a == 0)) & ((head_b == 0) == (goal_b == 0))
        if shapes & (~twice | bind_a | bind_b):
            in_body = slots < length
            body = bodies_ptr + (rule * longest + slots) * 3
            body_a = _instantiated(tl.load(body + 1, mask=in_body, other=0), head_a, head_b, x, y, base)
            body_b = _instantiated(tl.load(body + 2, mask=in_body, other=0), head_a, head_b, x, y, base)
            in_rest = (slots >= length) & (slots - length < A - 1)
            rest = state + (1 + slots - length) * 3
            p = tl.load(body, mask=in_body, other=0) + tl.load(rest, mask=in_rest, other=0).to(tl.int64)
            rest_a = tl.load(rest + 1, mask=in_rest, other=0).to(tl.int64)
            rest_b = tl.load(rest + 2, mask=in_rest, other=0).to(tl.int64)
            rest_a = tl.where((rest_a == source) & (source != 0), target, rest_a)
            rest_b = tl.where((rest_b == source) & (source != 0), target, rest_b)
            count, proof, overflow = _offer(
                p, body_a + rest_a, body_b + rest_b, slots, own, base, constants, table_ptr, bits,
                multiplier, probes,
                states_ptr, hashes_ptr, row, count, proof, overflow, A, PLACE_COUNT, S,
            )  # fmt: skip
    return count, proof, overflow


@triton.jit
def _instantiated(term, head_a, head_b, x, y, base):
    """Terms of a body: the goal's for variables of the head, fresh names for the others, 0 for padding."""
    found = tl.where(term == 0, 0, term + base - 1)
    found = tl.where((term == head_b) & (term != 0), y, found)
    return tl.where((term == head_a) & (term != 0), x, found)


@triton.jit
def _fact_range(
    goal_p, goal_a, goal_b, keys_ptr, swapped_keys_ptr, fact_start_ptr, fact_count_ptr, base, constants
):  # fmt: skip
    """First and last of the facts that share the goal's bound arguments, in plain or swapped order."""
    free_a = goal_a > constants
    free_b = goal_b > constants
    low = tl.where(
        free_a & free_b, goal_p * base * base, (goal_p * base + tl.where(free_a, goal_b, goal_a)) * base
    )
    span = tl.where(free_a & free_b, base * base, base)
    low = tl.where(free_a | free_b, low, low + goal_b)
    span = tl.where(free_a | free_b, span, 1)
    start = tl.load(fact_start_ptr + goal_p)
    stop = start + tl.load(fact_count_ptr + goal_p)
    if free_a & ~free_b:
        begin = _lower_bound(swapped_keys_ptr, start, stop, low)
        end = _lower_bound(swapped_keys_ptr, begin, stop, low + span)
    else:
        begin = _lower_bound(keys_ptr, start, stop, low)
        end = _lower_bound(keys_ptr, begin, stop, low + span)
    return begin, end


@triton.jit
def _with_facts(
    state, goal_a, goal_b, slots, own, begin, end, facts_ptr, keys_ptr, swapped_ptr, base, constants,
    table_ptr, bits, multiplier, probes, states_ptr, hashes_ptr, row, count, proof, overflow,
    A: tl.constexpr, PLACE_COUNT: tl.constexpr, S: tl.constexpr,
):  # fmt: skip
    """Offer the rest of the state for every fact of the range that unifies with the goal."""
    free_a = goal_a > constants
    free_b = goal_b > constants
    in_rest = slots < A - 1
    rest = state + (1 + slots) * 3
    for offset in range(end - begin):
        number = begin + offset
        if free_a & ~free_b:
            number = tl.load(swapped_ptr + begin + offset)
        fact_a = tl.load(facts_ptr + number * 3 + 1)
        fact_b = tl.load(facts_ptr + number * 3 + 2)
        itself = tl.load(keys_ptr + number) == own
        clash = free_a & (goal_a == goal_b) & (fact_a != fact_b)
        if ~itself & ~clash:
            p = tl.load(rest, mask=in_rest, other=0).to(tl.int64)
            a = tl.load(rest + 1, mask=in_rest, other=0).to(tl.int64)
            b = tl.load(rest + 2, mask=in_rest, other=0).to(tl.int64)
            a = tl.where(free_a & (a == goal_a), fact_a, a)
            b = tl.where(free_a & (b == goal_a), fact_a, b)
            a = tl.where(free_b & (a == goal_b), fact_b, a)
            b = tl.where(free_b & (b == goal_b), fact_b, b)
            count, proof, overflow = _offer(
                p, a, b, slots, own, base, constants, table_ptr, bits, multiplier, probes, states_ptr,
                hashes_ptr,
                row, count, proof, overflow, A, PLACE_COUNT, S,
            )  # fmt: skip
    return count, proof, overflow


@triton.jit
def _unvisited(
    hashes_ptr,
    history_ptr,
    stored_ptr,
    row,
    count,
    history_length,
    PLACE_COUNT: tl.constexpr,
    P: tl.constexpr,
):
    """Which of the row's places hold the first of its kind, and none of the history."""
    places = tl.arange(0, P)
    filled = places < count
    hashes = tl.load(hashes_ptr + row * PLACE_COUNT + places, mask=filled, other=0)
    left = filled
    for place in range(1, PLACE_COUNT):
        if place < count:
            own_hash = tl.load(hashes_ptr + row * PLACE_COUNT + place)
            before = tl.sum(((hashes == own_hash) & filled & (places < place)).to(tl.int64), 0)
            left = left & ~((places == place) & (before > 0))
    stored = tl.load(stored_ptr + row)
    for entry in range(history_length):
        if entry < stored:
            left = left & (hashes != tl.load(history_ptr + row * history_length + entry))
    return left


@triton.jit
def _expand(
    current_ptr, excluded_ptr, history_ptr, stored_ptr, done_ptr, facts_ptr, keys_ptr, swapped_ptr,
    swapped_keys_ptr,
    fact_start_ptr, fact_count_ptr, heads_ptr, bodies_ptr, body_length_ptr, rule_start_ptr, rule_count_ptr,
    table_ptr,
    states_ptr, hashes_ptr, mask_ptr, count_ptr, proof_ptr, overflow_ptr, pairs_ptr,
    longest, bits, multiplier, probes, base, constants, history_length,
    A: tl.constexpr, PLACE_COUNT: tl.constexpr, S: tl.constexpr, P: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    if tl.load(done_ptr + row) == 0:
        slots = tl.arange(0, S)
        query = excluded_ptr + row * 3
        own = (tl.load(query).to(tl.int64) * base + tl.load(query + 1)) * base + tl.load(query + 2)
        state = current_ptr + row * A * 3
        goal_p = tl.load(state).to(tl.int64)
        goal_a = tl.load(state + 1).to(tl.int64)
        goal_b = tl.load(state + 2).to(tl.int64)
        none = goal_p * 0
        count, proof, overflow = _with_rules(
            state, goal_p, goal_a, goal_b, slots, own, heads_ptr, bodies_ptr, body_length_ptr, rule_start_ptr,
            rule_count_ptr, longest, base, constants, table_ptr, bits, multiplier, probes, states_ptr,
            hashes_ptr, row,
            none, none, none, A, PLACE_COUNT, S,
        )  # fmt: skip
        begin, end = _fact_range(
            goal_p, goal_a, goal_b, keys_ptr, swapped_keys_ptr, fact_start_ptr, fact_count_ptr, base,
            constants
        )  # fmt: skip
        count, proof, overflow = _with_facts(
            state, goal_a, goal_b, slots, own, begin, end, facts_ptr, keys_ptr, swapped_ptr, base,
            constants, table_ptr,
            bits, multiplier, probes, states_ptr, hashes_ptr, row, count, proof, overflow, A, PLACE_COUNT, S,
        )  # fmt: skip
        tl.debug_barrier()  # what one thread wrote, others read
        count = tl.where(proof > 0, 0, count)
        left = _unvisited(hashes_ptr, history_ptr, stored_ptr, row, count, history_length, PLACE_COUNT, P)
        places = tl.arange(0, P)
        tl.store(mask_ptr + row * PLACE_COUNT + places, left.to(tl.int8), mask=places < PLACE_COUNT)
        tl.store(count_ptr + row, tl.sum(left.to(tl.int64), 0))
        tl.store(proof_ptr + row, proof.to(tl.int8))
        tl.store(overflow_ptr + row, tl.where(proof > 0, 0, overflow).to(tl.int8))
        tl.store(pairs_ptr + row * 2, tl.load(rule_count_ptr + goal_p))
        tl.store(pairs_ptr + row * 2 + 1, end - begin)


class TritonExpander:
    """Lists of successors by one program per row. `rows` counts programs that had something to do."""

    def __init__(self, kb: KnowledgeBase, dtype: torch.dtype, ragged: bool) -> None:
        self.kb, self.dtype, self.ragged = kb, dtype, ragged
        self.facts = FactSet(kb)
        self._rows = torch.zeros((), dtype=torch.int64, device=kb.facts.device)

    @property
    def rows(self) -> int:
        """Rows expanded so far; waits for the device."""
        return int(self._rows)

    def __call__(self, rows: Rows, tally: Tally) -> tuple[Lists, Tensor]:
        """Lists of all rows; none ever has to wait."""
        kb, device, count = self.kb, rows.done.device, rows.batch
        states = torch.zeros(count, CAP, ATOMS, 3, dtype=self.dtype, device=device)
        hashes = torch.zeros(count, CAP, dtype=torch.int64, device=device)
        mask = torch.zeros(count, CAP, dtype=torch.int8, device=device)
        found = torch.zeros(count, dtype=torch.int64, device=device)
        proof, overflow = torch.zeros(2, count, dtype=torch.int8, device=device)
        pairs = torch.zeros(count, 2, dtype=torch.int64, device=device)
        _expand[(count,)](  # pyright: ignore[reportIndexIssue]
            *(
                rows.current.contiguous(),
                rows.excluded.contiguous(),
                rows.history.contiguous(),
                rows.stored,
                rows.done,
            ),
            *(kb.facts, kb.fact_keys, kb.swapped, kb.swapped_keys, kb.fact_start, kb.fact_count),
            *(kb.heads, kb.bodies, kb.body_length, kb.rule_start, kb.rule_count, self.facts.table),
            *(states, hashes, mask, found, proof, overflow, pairs),
            *(kb.longest_body, self.facts.bits, self.facts.multiplier, self.facts.probes, kb.vocabulary.base),
            *(len(kb.vocabulary.constants), MAX_DEPTH + 1),
            A=ATOMS,
            PLACE_COUNT=CAP,
            S=SLOTS,
            P=PLACES,
        )
        self._rows += (~rows.done).sum()
        tally["rule_pairs"], tally["fact_pairs"] = pairs.sum(0)
        tally["bytes_packed"] = mask.sum() * (ATOMS * 3 * self.dtype.itemsize)
        empty = torch.zeros(0, dtype=torch.int64, device=device)
        lists = Lists(states, hashes, mask.bool(), empty, found, proof.bool(), overflow.bool())
        return as_ragged(lists) if self.ragged else lists, torch.zeros_like(rows.done)


def as_ragged(lists: Lists) -> Lists:
    """Grids packed end to end."""
    owner, place = lists.mask.nonzero(as_tuple=True)
    mask = torch.ones_like(owner, dtype=torch.bool)
    return lists._replace(
        states=lists.states[owner, place], hashes=lists.hashes[owner, place], mask=mask, owner=owner
    )
