"""Logits of a step's actions: padded lists, a fixed budget of rows, or exactly the real successors.

B rows, L columns for successors (CAP in grids). The special action TRUE, FALSE or END of each row is the last
column.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor

from perfsweep.workloads.prover.counters import Tally
from perfsweep.workloads.prover.maths.episodes import Rows
from perfsweep.workloads.prover.maths.packing import CAP, Lists
from perfsweep.workloads.prover.maths.policy import Policy
from perfsweep.workloads.prover.maths.state_values import EveryState

BUDGET_PER_ROW = 16
"""States per row of the static budget; the lists of all rows share it."""
DELTA = 10.0
"""Screening: actions whose 16-bit logit is this close to the best are scored again. What lies further below
has less than e^-10 of the best one's probability, of which an error of a half in its logit is 2e-5; errors of
5 fail the certificate."""


class Scores(NamedTuple):
    """Logits [B, L + 1]; rows without room [B]; values [X, .] and where successors' are: slot [B, L]."""

    logits: Tensor
    deferred: Tensor
    values: Tensor
    slot: Tensor


class RaggedScores(NamedTuple):
    """Logits of n successors end to end [n] and of specials [B]; values [m, .], and where successors' are [n]
    (None: each at its own number).
    """

    logits: Tensor
    last: Tensor
    values: Tensor
    place: Tensor | None


class Specials(NamedTuple):
    """Special action of each row: its kind (0 TRUE, 1 FALSE, 2 END) [B]; whether it is the only one [B]."""

    kind: Tensor
    forced: Tensor


def specials(lists: Lists) -> Specials:
    """TRUE on a proof, FALSE for an empty list, else END."""
    empty = lists.sizes == 0
    return Specials(torch.where(lists.proof, 0, torch.where(empty, 1, 2)), lists.proof | empty)


class Scorer(ABC):
    """What the three forms share.

    Parameters
    ----------
    values : evaluates states, however often each of them
    constants : the states TRUE, FALSE and END [3, A, 1+r] in the arm's integer type
    reuse : whether rows carry the value of their current state
    once : whether the three constant states were valued before the first step
    skip : whether rows with one action are left out
    """

    def __init__(
        self, policy: Policy, values: EveryState, constants: Tensor, *, reuse: bool, once: bool, skip: bool
    ) -> None:
        self.policy, self.values, self.constants = policy, values, constants
        self.reuse, self.once, self.skip = reuse, once, skip
        self.constant_values: Tensor | None = None
        self.screen: Screen | None = None

    def begin(self) -> None:
        """A job starts: value the constant states where that is done once."""
        if self.once:
            self.constant_values = self.values(self.constants).clone()

    @abstractmethod
    def __call__(self, rows: Rows, lists: Lists, tally: Tally) -> Scores:
        """Logits of all actions."""

    def _extra(self, rows: Rows, special: Specials) -> list[Tensor]:
        """States [B, A, 1+r] to be valued beside the successors: specials, current states."""
        found = [] if self.once else [self.constants[special.kind]]
        return found if self.reuse else [*found, rows.current]

    def _split(self, rows: Rows, special: Specials, extra: Tensor) -> tuple[Tensor, Tensor]:
        """Values of specials and of current states, [B, .] each, from those of `_extra` in the same order."""
        parts = list(extra.split(rows.batch)) if len(extra) else []
        if self.once:
            assert self.constant_values is not None
            parts.insert(0, self.constant_values[special.kind])
        if self.reuse:
            parts.append(rows.value)
        return parts[0], parts[1]

    def _products(self, special_values: Tensor, current: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Keys [B, .], their offsets [B], and logits of the specials [B]."""
        keys, offset = self.policy.keys(current)
        return keys, offset, (keys * special_values).sum(1) + offset


class PaddedScorer(Scorer):
    """All CAP places of every list, filled or not."""

    def __call__(self, rows: Rows, lists: Lists, tally: Tally) -> Scores:
        """Logits of all actions."""
        special = specials(lists)
        if self.screen is not None:
            return self._screened(rows, lists, special, self.screen, tally)
        states = [lists.states.flatten(0, 1), *self._extra(rows, special)]
        values = self.values(torch.cat(states))
        tally["states_padded"] = tally["states_wanted"] = len(values)
        successors, extra = values[: rows.batch * CAP], values[rows.batch * CAP :]
        keys, offset, last = self._products(*self._split(rows, special, extra))
        logits = torch.bmm(successors.view(rows.batch, CAP, -1), keys[:, :, None])[:, :, 0] + offset[:, None]
        logits = torch.where(lists.mask, logits, -torch.inf)
        slot = torch.arange(rows.batch * CAP, device=keys.device).view(rows.batch, CAP)
        return Scores(torch.cat([logits, last[:, None]], 1), torch.zeros_like(rows.done), successors, slot)

    def _screened(self, rows: Rows, lists: Lists, special: Specials, screen: Screen, tally: Tally) -> Scores:
        extra = self._extra(rows, special)
        beside = self.values(torch.cat(extra)) if extra else rows.value[:0]
        keys, offset, last = self._products(*self._split(rows, special, beside))
        owner = torch.arange(rows.batch, device=keys.device).repeat_interleave(CAP)
        states = lists.states.flatten(0, 1)
        tally["states_padded"] = tally["states_wanted"] = len(states) + len(beside)
        found, values, place = screen(states, owner, keys, offset, last, lists.mask.flatten())
        logits = torch.cat([found.view(rows.batch, CAP), last[:, None]], 1)
        return Scores(logits, torch.zeros_like(rows.done), values, place.view(rows.batch, CAP))


class BudgetScorer(Scorer):
    """Real states packed into a fixed number of rows; lists that do not fit wait an iteration."""

    def __call__(self, rows: Rows, lists: Lists, tally: Tally) -> Scores:
        """Logits of all actions."""
        special = specials(lists)
        extra = [state[:, None] for state in self._extra(rows, special)]
        grid = torch.cat([lists.states, *extra], 1)
        wanted = torch.ones_like(lists.mask[:, :1]) & ~(special.forced[:, None] & self.skip)
        # Finished rows must not hold room that others wait for.
        wanted = torch.cat([lists.mask, *[wanted] * len(extra)], 1) & ~rows.done[:, None]
        budget = max(BUDGET_PER_ROW * rows.batch, 128)
        place = wanted.flatten().cumsum(0).view_as(wanted) - 1
        deferred = place[:, -1] >= budget
        # What has no room goes to one more row, which is cut off.
        place = torch.where(wanted & ~deferred[:, None], place, budget)
        packed = grid.new_zeros(budget + 1, *grid.shape[2:])
        packed = packed.index_copy(0, place.flatten(), grid.flatten(0, 1))[:budget]
        values = self.values(packed)
        tally["states_padded"], tally["states_wanted"] = budget, wanted.sum()
        # What was not valued points at a row of zeros.
        values = torch.cat([values, torch.zeros_like(values[:1])])
        beside = [values[place[:, CAP + number]] for number in range(len(extra))]
        keys, offset, last = self._products(
            *self._split(rows, special, torch.cat(beside) if beside else values[:0])
        )
        slot = place[:, :CAP]
        flat = torch.arange(rows.batch, device=keys.device)[:, None].expand_as(place)
        owner = torch.zeros(budget + 1, dtype=torch.int64, device=keys.device).index_copy(
            0, place.flatten(), flat.flatten()
        )
        found = (values * keys[owner]).sum(1) + offset[owner]
        logits = torch.where(lists.mask, found[slot], -torch.inf)
        return Scores(torch.cat([logits, last[:, None]], 1), deferred, values, slot)


class RaggedScorer(Scorer):
    """Exactly the real states; with `screen`, in 16 bits first and again in 32 near the best."""

    def __call__(self, rows: Rows, lists: Lists, tally: Tally) -> Scores:
        """Logits of all actions."""
        found = self.ragged(rows, lists, specials(lists), tally)
        start = lists.sizes.cumsum(0) - lists.sizes
        column = torch.arange(len(lists.owner), device=start.device) - start[lists.owner]
        widest = int(lists.sizes.max()) if rows.batch else 0
        logits = torch.full((rows.batch, widest + 1), -torch.inf, device=start.device)
        logits[:, -1] = found.last
        logits[lists.owner, column] = found.logits
        slot = start[:, None] + torch.arange(widest, device=start.device)
        if found.place is not None:
            slot = found.place[slot.clamp(max=max(len(found.place) - 1, 0))]
        return Scores(logits, torch.zeros_like(rows.done), found.values, slot)

    def ragged(self, rows: Rows, lists: Lists, special: Specials, tally: Tally) -> RaggedScores:
        """Logits of all actions, successors end to end."""
        states, extra_at = self._beside(rows, special)
        if self.screen is None:
            values = self.values(torch.cat([lists.states, *states]) if states else lists.states)
            successors, beside = values[: len(lists.states)], values[len(lists.states) :]
        else:
            successors, beside = None, self.values(torch.cat(states)) if states else rows.value[:0]
        tally["states_padded"] = tally["states_wanted"] = len(lists.states) + len(beside)
        extra = self._spread(rows, len(states), extra_at, beside)
        keys, offset, last = self._products(*self._split(rows, special, extra))
        if successors is not None:
            logits = self.policy.dots(successors, keys, offset, lists.owner)
            return RaggedScores(logits, last, successors, None)
        assert self.screen is not None
        found, values, place = self.screen(lists.states, lists.owner, keys, offset, last, lists.mask)
        return RaggedScores(found, last, values, place)

    def _beside(self, rows: Rows, special: Specials) -> tuple[list[Tensor], Tensor | None]:
        """States to be valued beside the successors, and of which rows (None: all)."""
        extra = self._extra(rows, special)
        if not self.skip or not extra:
            return extra, None
        at = (~special.forced).nonzero()[:, 0]
        return [states[at] for states in extra], at

    def _spread(self, rows: Rows, parts: int, at: Tensor | None, beside: Tensor) -> Tensor:
        """Values of some rows at their places among all rows, zeros elsewhere."""
        if at is None or not parts:
            return beside
        spread = beside.new_zeros(parts, rows.batch, beside.shape[1])
        spread[:, at] = beside.view(parts, len(at), beside.shape[1])
        return spread.flatten(0, 1)


class Screen:
    """Logits in bfloat16, and in float32 for all actions within `DELTA` of their row's best.

    Sound while the 16-bit error stays below DELTA / 2; `worst` keeps the largest error seen where both are
    known.
    """

    def __init__(self, low: Policy, values: EveryState) -> None:
        self.low, self.values = low, values
        self.screened = self.rescored = 0
        self.worst: Tensor | None = None

    def __call__(
        self, states: Tensor, owner: Tensor, keys: Tensor, offset: Tensor, last: Tensor, real: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Logits [n] of states, float32 values [m, .] of the rescored, and each state's row there [n].

        `last` [B] are the exact logits of the special actions, which take part in the best.
        """
        low = torch.where(real, self.low.state_logits(states, keys, offset, owner), -torch.inf)
        # The best is taken among the specials too, whose logits are exact.
        top = last.scatter_reduce(0, owner, low, "amax")
        near = (low >= top[owner] - DELTA).nonzero()[:, 0]
        values = self.values(states[near])
        exact = self.low.dots(values, keys, offset, owner[near])
        self.screened += len(states)
        self.rescored += len(near)
        if len(near):
            error = (exact - low[near]).abs().max()
            self.worst = error if self.worst is None else torch.maximum(self.worst, error)
        place = torch.zeros_like(owner)
        place[near] = torch.arange(len(near), device=near.device)
        low[near] = exact
        return low, values, place


SCORERS: dict[str, type[Scorer]] = {
    "padded": PaddedScorer,
    "row_budget": BudgetScorer,
    "ragged": RaggedScorer,
}
