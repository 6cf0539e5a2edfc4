"""Which states go through the policy: real successors alone, and what is known of others already."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfsweep.workloads.api import Level, Toggle
from perfsweep.workloads.prover.variants.part import Part, reordered
from perfsweep.workloads.variant import Variant

if TYPE_CHECKING:
    from torch import Tensor

    from perfsweep.workloads.prover.counters import Tally
    from perfsweep.workloads.prover.maths.episodes import Rows
    from perfsweep.workloads.prover.maths.greedy_choice import RaggedScores, Scores, Specials
    from perfsweep.workloads.prover.maths.packing import Lists, Packed

BUDGET_PER_ROW = 16
"""States per row of the static budget; the lists of all rows share it."""

POLICY_ROWS = Toggle(
    "policy_rows",
    (Level("padded"), reordered("row_budget", "states_padded"), reordered("ragged", "states_padded")),
    "states the policy sees: padded lists, a fixed budget of rows, or the real ones",
    "Future 6",
)


class RealStates(Part):
    """Places of lists that are not filled stay out of the policy."""

    skips_forced = False
    """Whether rows with one action stay out as well."""

    @property
    def states_of_a_row(self) -> int:
        """What their lists have on average, generously."""
        return BUDGET_PER_ROW


class Budget(RealStates):
    """Real states packed into a fixed number of rows; lists that do not fit wait an iteration."""

    def score(self, rows: Rows, lists: Lists, tally: Tally) -> Scores:
        """Logits of all actions."""
        import torch

        from perfsweep.workloads.prover.maths.greedy_choice import Scores, specials
        from perfsweep.workloads.prover.maths.packing import CAP

        special = specials(lists)
        others = [state[:, None] for state in self.others(rows, special)]
        grid = torch.cat([lists.states, *others], 1)
        wanted = torch.ones_like(lists.mask[:, :1]) & ~(special.forced[:, None] & self.skips_forced)
        # Finished rows must not hold room that others wait for.
        wanted = torch.cat([lists.mask, *[wanted] * len(others)], 1) & ~rows.done[:, None]
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
        found = [values[place[:, CAP + number]] for number in range(len(others))]
        keys, offset, last = self.products(rows, special, torch.cat(found) if found else values[:0])
        slot = place[:, :CAP]
        flat = torch.arange(rows.batch, device=keys.device)[:, None].expand_as(place)
        owner = torch.zeros(budget + 1, dtype=torch.int64, device=keys.device).index_copy(
            0, place.flatten(), flat.flatten()
        )
        logits = (values * keys[owner]).sum(1) + offset[owner]
        logits = torch.where(lists.mask, logits[slot], -torch.inf)
        return Scores(torch.cat([logits, last[:, None]], 1), deferred, values, slot)


class Ragged(RealStates):
    """Lists end to end: exactly the real states."""

    ragged = True

    def places(self, total: Tensor) -> tuple[Tensor, int]:
        """Each list begins where the one before it ends."""
        return total.cumsum(0) - total, int(total.sum())

    def lists(self, rows: Rows, packed: Packed) -> Lists:
        """Packed successors end to end."""
        from perfsweep.workloads.prover.maths.packing import ragged_lists

        return ragged_lists(rows, packed)

    def score(self, rows: Rows, lists: Lists, tally: Tally) -> Scores:
        """Logits in a grid as wide as the longest list."""
        import torch

        from perfsweep.workloads.prover.maths.greedy_choice import Scores

        found = self.ragged_scores(rows, lists, tally)
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

    def ragged_scores(self, rows: Rows, lists: Lists, tally: Tally) -> RaggedScores:
        """Logits of all actions, successors end to end."""
        from perfsweep.workloads.prover.maths.greedy_choice import RaggedScores, specials

        special = specials(lists)
        others, at = self.others(rows, special), None
        if self.skips_forced and others:
            at = (~special.forced).nonzero()[:, 0]
            others = [states[at] for states in others]
        successors, found = self.evaluated(rows, lists.states, others)
        tally["states_padded"] = tally["states_wanted"] = len(lists.states) + len(found)
        if at is not None:  # zeros for the rows that were left out
            spread = found.new_zeros(len(others), rows.batch, found.shape[1])
            spread[:, at] = found.view(len(others), len(at), found.shape[1])
            found = spread.flatten(0, 1)
        keys, offset, last = self.products(rows, special, found)
        logits, values, place = self.logits(lists, successors, keys, offset, last)
        return RaggedScores(logits, last, values, place)

    def logits(
        self, lists: Lists, values: Tensor, keys: Tensor, offset: Tensor, last: Tensor
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Logits [n], values, and which of these is each successor's: None, its own number."""
        return self.policy.dots(values, keys, offset, lists.owner), values, None

    def picked(self, rows: Rows, lists: Lists, column: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """State, hash and action number of a column of each row; anything where the row has none."""
        if not len(lists.states):
            return rows.current, rows.history[:, 0], column
        start = lists.sizes.cumsum(0) - lists.sizes
        at = (start + column).clamp(max=len(lists.states) - 1)
        return lists.states[at], lists.hashes[at], column


OBS_REUSE = Toggle(
    "obs_reuse", (Level("off"), reordered("on", "states_evaluated")), "keep the value of the chosen successor"
)


class ReusedValues(Part):
    """The value of a chosen successor is that of the next current state."""

    def first_values(self, states: Tensor) -> Tensor:
        """Values of the first states."""
        return self.values(states).clone()

    def current_states(self, rows: Rows) -> list[Tensor]:
        """None: their values are known."""
        return []

    def current_values(self, rows: Rows, parts: list[Tensor]) -> Tensor:
        """What was kept."""
        return rows.value

    def kept_value(self, rows: Rows, scores: Scores, column: Tensor) -> Tensor:
        """That of the column of each row; anything where the row has none."""
        slot, values = scores.slot, scores.values
        if not slot.shape[1] or not len(values):
            return rows.value
        return values[slot.gather(1, column[:, None])[:, 0].clamp(max=len(values) - 1)]


CONST_STATES = Toggle(
    "const_states", (Level("off"), reordered("on", "states_evaluated")), "value constant states once"
)


class EndsOnce(Part):
    """TRUE, FALSE and END are the same states in every step."""

    def begin_job(self) -> None:
        """Value them."""
        super().begin_job()
        self.values_of_ends = self.values(self.ends).clone()

    def end_states(self, special: Specials) -> list[Tensor]:
        """None: their values are known."""
        return []

    def end_values(self, special: Specials, parts: list[Tensor]) -> Tensor:
        """One of the three for each row."""
        return self.values_of_ends[special.kind]


FORCED_SKIP = Toggle(
    "forced_skip",
    (Level("off"), reordered("on", "states_wanted", conflicts={"policy_rows": ("padded",)})),
    "rows with one action skip the policy",
)


class ForcedSkipped(RealStates):
    """Where there is one action its logit does not matter."""

    skips_forced = True


VARIANTS = (
    Variant(POLICY_ROWS, {"row_budget": Budget, "ragged": Ragged}),
    Variant(OBS_REUSE, {"on": ReusedValues}),
    Variant(CONST_STATES, {"on": EndsOnce}),
    Variant(FORCED_SKIP, {"on": ForcedSkipped}),
)
