"""Logits in bfloat16, and in float32 for all actions near their row's best."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfsweep.workloads.api import Parity, Toggle
from perfsweep.workloads.prover.variants.part import COMPILED, Part
from perfsweep.workloads.variant import Variant, choices

if TYPE_CHECKING:
    from torch import Tensor

    from perfsweep.workloads.prover.maths.episodes import Rows
    from perfsweep.workloads.prover.maths.packing import Lists

DELTA = 10.0
"""Actions whose 16-bit logit is this close to the best are scored again. Lower ones have less than e^-10 of
the best probability, of which an error of a half in the logit is 2e-5; errors of 5 fail the certificate."""

SCREEN16 = Toggle(
    "screen16",
    choices(
        "off",
        "on",
        parity=Parity.TOLERANCE,
        bounds={"log_prob": 1e-2},
        conflicts={"tf32": ("on",), "policy_rows": ("row_budget",), **COMPILED},
        witness="states_rescored",
    ),
    "score in bfloat16, score again in float32 what comes near the best",
)


class Screened(Part):
    """Sound while 16-bit errors stay below DELTA / 2; `worst` is the largest seen where both are known."""

    def build(self) -> None:
        """Make the policy in bfloat16 as well."""
        super().build()
        self.low = self.network(low=True)
        self.screened = self.rescored = 0
        self.worst: Tensor | None = None

    def evaluated(self, rows: Rows, states: Tensor, others: list[Tensor]) -> tuple[Tensor, Tensor]:
        """Values of `others` alone: successors are scored first."""
        import torch

        return states[:0], self.values(torch.cat(others)) if others else rows.value[:0]

    def logits(
        self, lists: Lists, values: Tensor, keys: Tensor, offset: Tensor, last: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Logits of successors, float32 values [m, .] of the rescored, and each successor's row there.

        `last` [B] are the exact logits of the special actions, which take part in the best.
        """
        import torch

        states, real, owner = lists.states.flatten(0, -3), lists.mask.flatten(), lists.owner
        if not self.ragged:
            owner = torch.arange(len(keys), device=keys.device).repeat_interleave(lists.mask.shape[1])
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
        return low.view(lists.mask.shape), values, place.view(lists.mask.shape)

    def screening_error(self) -> float:
        """Largest error of a logit, in units of delta: up to a half, choices are those of float32."""
        return 0.0 if self.worst is None else float(self.worst) / DELTA

    def warmed_up(self) -> None:
        """Screening of the warm-up is no work of any job."""
        super().warmed_up()
        self.screened = self.rescored = 0

    def counted(self) -> dict[str, float]:
        """With states of the policy in bfloat16."""
        counts = super().counted()
        counts["states_evaluated"] += self.screened
        return {**counts, "low_precision_states": self.screened, "states_rescored": self.rescored}


VARIANTS = (Variant(SCREEN16, {"on": Screened}),)
