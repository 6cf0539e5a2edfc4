"""Pieces of a batch, and the optimiser's update."""

from __future__ import annotations

from perfsweep.workloads import toggles as shared
from perfsweep.workloads.api import Levels, Parity
from perfsweep.workloads.spd.config import SpdConfig
from perfsweep.workloads.spd.variants.part import Part
from perfsweep.workloads.variant import Variant


def _shared_sources(config: SpdConfig, levels: Levels) -> str | None:
    if config.microbatches > 1 and config.shares_sources:
        return (
            f"workload.microbatches={config.microbatches} cannot share adversarial sources"
            " (workload.pgd_scope=shared)"
        )
    return None


def _unless_frozen_and_linear(config: SpdConfig, levels: Levels) -> Parity | None:
    # The log term of the minimality loss is no sum over microbatches.
    return None if config.frozen_draws and config.recipe.beta == 0 else Parity.STOCHASTIC


MICRO_BATCH = shared.micro_batch(
    *("loop", "whole"),
    numbers=False,
    each={
        "loop": {"refused": _shared_sources},
        "whole": {"loosened": _unless_frozen_and_linear, "witness": "masked_passes"},
    },
)


class WholeBatch(Part):
    """A batch in one piece."""

    @property
    def pieces(self) -> int:
        """One."""
        return 1


OPTIMIZER = shared.optimizer(every={"witness": "ops"})


class OtherUpdate(Part):
    """Parameters are updated together."""

    @property
    def update(self) -> str:
        """The form of the level."""
        return str(self.levels["optimizer"])


VARIANTS = (Variant(MICRO_BATCH, {"whole": WholeBatch}), Variant(OPTIMIZER, others=OtherUpdate))
