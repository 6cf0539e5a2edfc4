"""What the policy multiplies: folded tables, each distinct state once, in TF32."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfsweep.workloads import toggles as shared
from perfsweep.workloads.api import Level, Toggle
from perfsweep.workloads.prover.variants.part import COMPILED, ROUNDED, Part, reordered
from perfsweep.workloads.variant import Variant

if TYPE_CHECKING:
    from perfsweep.workloads.prover.maths.state_values import EveryState, OncePerJob

STORE_STATES = 2**17
"""States whose values are kept for a whole job at most: 134 MB at full width."""

FOLD = Toggle(
    "fold",
    (Level("off"), reordered("on", "policy_macs")),
    "fold the first layer into the tables, apply the last late",
)


class Folded(Part):
    """A policy without its first and its last product."""

    folded = True


DEDUP = Toggle(
    "dedup",
    (
        Level("off"),
        *(reordered(value, "states_evaluated", conflicts=COMPILED) for value in ("step", "global")),
    ),
    "value each distinct state once",
)


class DistinctInStep(Part):
    """Each distinct state of a step is evaluated once."""

    def valued(self) -> EveryState:
        """Forgets with the step."""
        from perfsweep.workloads.prover.maths.state_values import OncePerStep

        return OncePerStep(self.policy.values, self.kb.vocabulary.base)


class DistinctInJob(Part):
    """Each distinct state of a job is evaluated once, while there is room."""

    values: OncePerJob

    def valued(self) -> EveryState:
        """Forgets with the job."""
        from perfsweep.workloads.prover.maths.state_values import OncePerJob

        base, device = self.kb.vocabulary.base, self.kb.facts.device
        return OncePerJob(self.policy.values, base, self.policy.width, STORE_STATES, device)

    def counted(self) -> dict[str, float]:
        """With states that were known."""
        return {**super().counted(), "store_hits": self.values.hits}


class Tf32Products(Part):
    """Products of float32 on tensor cores."""

    tf32 = True

    @property
    def doubt(self) -> float:
        """More choices may turn."""
        return 10 * super().doubt


VARIANTS = (
    Variant(FOLD, {"on": Folded}),
    Variant(DEDUP, {"step": DistinctInStep, "global": DistinctInJob}),
    Variant(shared.tf32(every={"bounds": ROUNDED, "witness": "tf32_products"}), {"on": Tf32Products}),
)
