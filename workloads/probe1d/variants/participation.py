"""Which pairs take part in a pass of a damped solver, and when a slab ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfsweep.workloads.api import Baseline, Level, Numbers, Parity, Toggle
from perfsweep.workloads.probe1d.claims import CONTEXT, IDEAS
from perfsweep.workloads.probe1d.variants.by_latent import BY_LATENT
from perfsweep.workloads.probe1d.variants.part import Part
from perfsweep.workloads.variant import Variant

if TYPE_CHECKING:
    from torch import Tensor

    from perfsweep.workloads.probe1d.maths.blocks import Solution
    from perfsweep.workloads.probe1d.maths.derivatives import Derivatives
    from perfsweep.workloads.probe1d.maths.levenberg_marquardt import Step
    from perfsweep.workloads.probe1d.reference import Slab

DAMPED = {"solver": ("naive", "late")}

CONSISTENT_STOP = Toggle(
    "consistent_stop",
    (
        Level("seed", requires={"solver": ("naive",)}),
        Level("mismatch", requires={"solver": ("late",)}),
        Level(
            "scaled",
            Parity.TOLERANCE,
            witness="scaled_tests",
            in_code="one scaled gradient for both tests, which pairs are active and which have converged",
        ),
    ),
    "measure activity and convergence by the same scaled gradient",
    CONTEXT,
    baselines=(Baseline("mismatch", {"solver": ("late",)}), Baseline("scaled", {"solver": ("newton",)})),
)


class ScaledStop(Part):
    """Which pairs are active and which have converged is told by the scaled gradient alone."""

    def stops_before(self, slab: Slab) -> Tensor:
        """Once it is small for all pairs, or they take no more steps."""
        self.counts.add("scaled_tests")
        return ((slab.gmax <= self.config.tol) | slab.frozen).all()

    def size(self, slab: Slab, grad: Derivatives) -> Tensor:
        """Of the gradient, scaled."""
        return slab.gmax

    def stops_after(self, grad: Derivatives, step: Step) -> Tensor:
        """Never."""
        import torch

        return torch.zeros((), dtype=torch.bool, device=grad.g0.device)

    @property
    def ignores_noise(self) -> bool:
        """Of means: the damping is to get where the scaled gradient is small, below rounding of the loss."""
        return not self.rules.sums


SKIP_ZERO_GRAD = Toggle(
    "skip_zero_grad",
    (
        Level("off"),
        Level(
            "exact",
            requires=DAMPED,
            witness="skipped_zero_grad",
            in_code="no retries of pairs whose gradient is zero",
        ),
        Level("tol", Parity.TOLERANCE, requires=DAMPED, witness="skipped_zero_grad"),
    ),
    "leave pairs without a gradient out of the retries",
    IDEAS,
)


class SkipZero(Part):
    """Steps without pairs that have no gradient."""

    def step(self, slab: Slab, grad: Derivatives, wanted: Tensor) -> Step:
        """As before, of the others."""
        idle = self.idle(slab, grad)
        slab.tally.skipped = slab.tally.skipped + (wanted & idle).sum()
        return super().step(slab, grad, wanted & ~idle)

    def idle(self, slab: Slab, grad: Derivatives) -> Tensor:
        """Pairs without events, or with a gradient of exactly zero."""
        return (slab.block.count == 0) | ((grad.g0 == 0) & (grad.g1 == 0))


class SkipSmall(SkipZero):
    """Steps without pairs whose scaled gradient is within the tolerance."""

    def idle(self, slab: Slab, grad: Derivatives) -> Tensor:
        """Those without a gradient too."""
        return super().idle(slab, grad) | (slab.gmax <= self.config.tol)


FREEZE_FAILED = Toggle(
    "freeze_failed",
    (Level(0), Level(3, Parity.TOLERANCE, requires=DAMPED, witness="frozen_pairs")),
    "freeze a pair after this many failed passes in a row",
    IDEAS,
    numbers=Numbers(1, 1000, like=Level(0, Parity.TOLERANCE, requires=DAMPED, witness="frozen_pairs")),
)


class FreezeFailed(Part):
    """A pair whose steps keep failing takes none any more."""

    def stepped(self, slab: Slab, step: Step) -> None:
        """Count failures in a row."""
        import torch

        failures = slab.state.failures
        slab.state.failures = torch.where(step.failed, failures + 1, torch.zeros_like(failures))
        slab.frozen = slab.frozen | (slab.state.failures >= int(self.levels["freeze_failed"]))

    def store(self, solution: Solution, slab: Slab) -> None:
        """Count the pairs."""
        self.counts.add("frozen_pairs", self.counts.read(slab.frozen.sum()))
        super().store(solution, slab)


ACTIVE_SET = Toggle(
    "active_set",
    (
        Level("off"),
        Level(
            "pair",
            Parity.TOLERANCE,
            requires={**BY_LATENT, "consistent_stop": ("scaled",)},
            witness="compacted_pairs",
        ),
    ),
    "leave pairs out of the passes once they have converged",
    "analysis",
)


class ActivePairs(Part):
    """Every pair is a row of its own, and leaves the passes once it has converged."""

    compact = True

    def wanted(self, slab: Slab, grad: Derivatives) -> Tensor:
        """Not pairs that have converged."""
        return super().wanted(slab, grad) & (slab.gmax > self.config.tol)

    def left_none(self, solution: Solution, slab: Slab) -> bool:
        """Store and drop the pairs that are no longer open."""
        still = (slab.gmax > self.config.tol) & ~slab.frozen
        if self.rules.pin_dead:
            still = still & (slab.block.count > 0)
        keep = still.any(1).nonzero().squeeze(1)
        self.counts.add("host_syncs")
        if gone := slab.evals.shape[0] - keep.numel():
            self.store(solution, slab)
            self.counts.add("compacted_pairs", gone * slab.evals.shape[1])
            slab.select(keep)
        return not keep.numel()


VARIANTS = (
    Variant(CONSISTENT_STOP, {"scaled": ScaledStop}),
    Variant(SKIP_ZERO_GRAD, {"exact": SkipZero, "tol": SkipSmall}),
    Variant(FREEZE_FAILED, others=FreezeFailed),
    Variant(ACTIVE_SET, {"pair": ActivePairs}),
)
