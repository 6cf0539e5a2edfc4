"""Values of states: each once per occurrence, once per step, or once per job."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from perfsweep.workloads.prover.data.hashing import hash_states
from perfsweep.workloads.prover.maths.policy import CHUNK

Values = Callable[[Tensor], Tensor]
"""States [N, A, 1+r] to values [N, .]."""


class EveryState:
    """Evaluates whatever it is given. `evaluated` counts states that went through the network.

    On a CPU a cacheful of states at a time, into a buffer that the next call writes again: fresh memory for
    tens of thousands of values would cost more page faults than the products take.
    """

    def __init__(self, values: Values) -> None:
        self._values = values
        self.evaluated = 0
        self._buffer = torch.empty(0, 0)

    def __call__(self, states: Tensor) -> Tensor:
        """Values [N, .] of states [N, A, 1+r], good until the next call."""
        self.evaluated += len(states)
        if states.is_cuda or len(states) <= CHUNK:
            return self._values(states)
        for start in range(0, len(states), CHUNK):
            part = self._values(states[start : start + CHUNK])
            self._reserve(len(states), part)
            self._buffer[start : start + len(part)] = part
        return self._buffer[: len(states)]

    def _reserve(self, size: int, like: Tensor) -> None:
        if self._buffer.shape[0] < size or self._buffer.shape[1] != like.shape[1]:
            self._buffer = like.new_empty(size + size // 4, like.shape[1])

    def forget(self) -> None:
        """A job ends."""


class Untallied(EveryState):
    """Evaluates uncounted, as compiled code needs: a guarded counter would recompile each step."""

    def __call__(self, states: Tensor) -> Tensor:
        """Values [N, .] of states [N, A, 1+r]."""
        return self._values(states)


class OncePerStep(EveryState):
    """Evaluates each distinct state of a call once."""

    def __init__(self, values: Values, base: int) -> None:
        super().__init__(values)
        self.base = base

    def __call__(self, states: Tensor) -> Tensor:
        """Values [N, .] of states [N, A, 1+r]."""
        if not len(states):
            return super().__call__(states)
        first, inverse = distinct(states, self.base)
        return super().__call__(states[first])[inverse]


def distinct(states: Tensor, base: int) -> tuple[Tensor, Tensor]:
    """The first of each distinct state [U], and for every state the number of its equal [N].

    States are told apart by their hash and then compared in full: one that shares its hash only stays by
    itself.
    """
    hashes = hash_states(states, base)
    order = torch.sort(hashes, stable=True).indices
    ordered = hashes[order]
    new = torch.ones_like(ordered, dtype=torch.bool)
    # The full comparison costs a gather; a collision of hashes would cost a wrong value.
    new[1:] = (ordered[1:] != ordered[:-1]) | (states[order[1:]] != states[order[:-1]]).flatten(1).any(1)
    group = torch.empty_like(order)
    group[order] = new.cumsum(0) - 1
    return order[new], group


class OncePerJob(OncePerStep):
    """Keeps values of the job's states in a table of bounded size; what finds no room is evaluated again.

    The table is open-addressing, probed for all states at once. A hit is a hit only if the whole state is
    equal.
    """

    PROBES = 8

    def __init__(self, values: Values, base: int, width: int, room: int, device: torch.device) -> None:
        super().__init__(values, base)
        self.room, self.width, self.device = room, width, device
        self.hits = 0
        self.forget()

    def forget(self) -> None:
        """Start with an empty table."""
        self.slots = torch.full((4 * self.room,), -1, dtype=torch.int64, device=self.device)
        self.states: Tensor | None = None
        self.kept = torch.empty(0, self.width, device=self.device)
        self.used = 0

    def __call__(self, states: Tensor) -> Tensor:
        """Values [N, .] of states [N, A, 1+r]."""
        if not len(states):
            return EveryState.__call__(self, states)
        first, inverse = distinct(states, self.base)
        unique = states[first]
        hashes = hash_states(unique, self.base)
        place = self._find(unique, hashes)
        missing = (place < 0).nonzero()[:, 0]
        self.hits += len(unique) - len(missing)
        values = torch.empty(len(unique), self.width, device=states.device)
        if len(missing):
            fresh = EveryState.__call__(self, unique[missing])
            values[missing] = fresh
            self._keep(unique[missing], hashes[missing], fresh)
        found = (place >= 0).nonzero()[:, 0]
        values[found] = self.kept[place[found]]
        return values[inverse]

    def _find(self, states: Tensor, hashes: Tensor) -> Tensor:
        """Places of states in the store, -1 where unknown."""
        place = torch.full_like(hashes, -1)
        if self.states is None:
            return place
        for probe in range(self.PROBES):
            at = self.slots[(hashes + probe) % len(self.slots)]
            same = (at >= 0) & (place < 0)
            same &= (self.states[at.clamp(min=0)] == states).flatten(1).all(1)
            place = torch.where(same, at, place)
        return place

    def _keep(self, states: Tensor, hashes: Tensor, values: Tensor) -> None:
        """Append states that are new while there is room, and enter them into free slots."""
        room = min(len(states), self.room - self.used)
        if room <= 0:
            return
        self._grow(states, self.used + room)
        assert self.states is not None
        numbers = torch.arange(self.used, self.used + room, device=states.device)
        self.states[numbers], self.kept[numbers] = states[:room], values[:room]
        self.used += room
        waiting = torch.arange(room, device=states.device)
        for probe in range(self.PROBES):
            at = (hashes[waiting] + probe) % len(self.slots)
            free = self.slots[at] < 0
            self.slots[at[free]] = numbers[waiting[free]]  # of several for one slot one stays
            waiting = waiting[self.slots[at] != numbers[waiting]]

    def _grow(self, states: Tensor, size: int) -> None:
        """Grow the store by doubling."""
        have = 0 if self.states is None else len(self.states)
        if size <= have:
            return
        size = min(self.room, max(size, 2 * have, 1024))
        grown = torch.zeros(size, *states.shape[1:], dtype=states.dtype, device=states.device)
        kept = torch.empty(size, self.width, device=states.device)
        if self.states is not None:
            grown[:have], kept[:have] = self.states, self.kept
        self.states, self.kept = grown, kept
