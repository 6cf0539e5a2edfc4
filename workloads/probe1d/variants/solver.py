"""Which solver runs: the report's, its later form, or Newton with an active set and a certificate."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from perfsweep.workloads.api import Level, Parity, Toggle
from perfsweep.workloads.probe1d.claims import CONTEXT
from perfsweep.workloads.probe1d.variants.by_latent import BucketSums, exact_layout
from perfsweep.workloads.probe1d.variants.part import Part
from perfsweep.workloads.variant import Variant

if TYPE_CHECKING:
    from torch import Tensor

    from perfsweep.workloads.probe1d.data.problem import Csr, Penalty
    from perfsweep.workloads.probe1d.maths.blocks import Block, Solution
    from perfsweep.workloads.probe1d.maths.buckets import Chunker, Layout
    from perfsweep.workloads.probe1d.maths.certify import Certifier
    from perfsweep.workloads.probe1d.maths.derivatives import Derivatives
    from perfsweep.workloads.probe1d.maths.levenberg_marquardt import DampingRules, Step
    from perfsweep.workloads.probe1d.maths.prepared_rows import Prepared, PreparedRows
    from perfsweep.workloads.probe1d.reference import Slab

SOLVER = Toggle(
    "solver",
    (
        Level("naive"),
        Level("late", Parity.TOLERANCE, witness="late_passes"),
        Level(
            "newton",
            Parity.TOLERANCE,
            witness="newton_passes",
            in_code="Newton steps for the pairs that are still active, and a certificate for each pair",
        ),
    ),
    "report-time solver, its later upstream form, or Newton with an active set and certified pairs",
    CONTEXT,
)


class Late(Part):
    """The later form: means instead of sums, a plan of chunks, and a stop by the scaled gradient."""

    @property
    def rules(self) -> DampingRules:
        """Its constants."""
        from perfsweep.workloads.probe1d.maths.levenberg_marquardt import LATE

        return LATE

    def chunker(self, x: Csr, classes: int) -> Chunker:
        """Boundaries are found once; row indices are still built on every pass."""
        from perfsweep.workloads.probe1d.maths.buckets import PlannedChunks

        return PlannedChunks(x, self.chunk_limit(classes, x.values.is_cuda), self.counts)

    def unit(self, block: Block) -> float:
        """Means."""
        return 1.0 / block.rows

    def stops_before(self, slab: Slab) -> Tensor:
        """Once the scaled gradient of all pairs is small, or they take no more steps."""
        return ((slab.gmax <= self.config.tol) | slab.frozen).all()

    def wanted(self, slab: Slab, grad: Derivatives) -> Tensor:
        """Not pairs without events, nor those whose gradient is small."""
        return super().wanted(slab, grad) & (slab.block.count > 0) & (self.size(slab, grad) > self.config.tol)

    def size(self, slab: Slab, grad: Derivatives) -> Tensor:
        """Of the gradient, in the units of the latent as they are."""
        import torch

        return torch.maximum(grad.g0.abs(), grad.g1.abs())

    def stops_after(self, grad: Derivatives, step: Step) -> Tensor:
        """Never."""
        import torch

        return torch.zeros((), dtype=torch.bool, device=grad.g0.device)


class Newton(BucketSums):
    """Newton steps accepted by slope, in float64; then every pair is evaluated once more, and polished."""

    @property
    def usual_penalty(self) -> Penalty:
        """Small, and in units of the latent."""
        from perfsweep.workloads.probe1d.data.problem import SCALED

        return SCALED

    def block(self, rows: PreparedRows, columns: Tensor) -> Block:
        """In float64 whatever events are evaluated in; pairs that float32 cannot tell apart are left out."""
        import torch

        from perfsweep.workloads.probe1d.maths.ill_conditioned import above_rounding
        from perfsweep.workloads.probe1d.maths.newton import DECREMENT_TOL

        block = rows.block(columns, torch.float64, flat=self.compact)
        return above_rounding(block, DECREMENT_TOL) if self.in_float32 else block

    def passes(
        self, rows: PreparedRows, solution: Solution
    ) -> Callable[[int, Block, Tensor, Tensor], Iterator[None]]:
        """Newton passes, which need no loss."""
        from perfsweep.workloads.probe1d.kernels.native_step import NativeStep
        from perfsweep.workloads.probe1d.maths import newton
        from perfsweep.workloads.probe1d.maths.ill_conditioned import ill_conditioned
        from perfsweep.workloads.probe1d.maths.separable import TAIL_LOSS

        # Lanes stop at a share of the tolerance, so that certification rarely fails.
        margin = newton.FLOAT32_MARGIN if self.in_float32 else 1.0
        most = self.config.max_iter or 100
        return newton.NewtonSolver(
            newton.NewtonRules(
                self.config.tol * margin, newton.DECREMENT_TOL * margin, TAIL_LOSS * margin, max_iter=most
            ),
            rows.evaluator,
            self.log,
            self.hook,
            self.counts,
            solution,
            compact=self.compact,
            metric=rows.metric,
            phase=self.phase,
            # Every pair is evaluated once more anyway, so the bound on its last step is enough.
            reach=rows.reach(),
            least=rows.least() if rows.dense is None else None,
            ill_conditioned=ill_conditioned(rows.constants),
            step=NativeStep() if self.native(rows.x) else newton.torch_step,
            rounding=self._rounding(rows),
        ).solve

    def _rounding(self, rows: PreparedRows) -> tuple[Tensor | None, Tensor | None]:
        """What bounds the rounding of the native kernel's float32 sums over all events, of each latent."""
        from perfsweep.workloads.probe1d.maths.precision import BLOCK_EVENTS

        if not (self.native(rows.x) and self.in_float32):
            return None, None
        return rows.slots.clamp(max=BLOCK_EVENTS), rows.positive().double()

    def certifier(self, prepared: Prepared, solution: Solution) -> Certifier:
        """The arm's pass in float64."""
        from perfsweep.workloads.probe1d.data.problem import constants
        from perfsweep.workloads.probe1d.kernels.native_step import NativeStep
        from perfsweep.workloads.probe1d.maths.certify import Certifier
        from perfsweep.workloads.probe1d.maths.newton import NewtonRules
        from perfsweep.workloads.probe1d.maths.polish import Polisher
        from perfsweep.workloads.probe1d.maths.precision import PRECISIONS
        from perfsweep.workloads.probe1d.maths.sums_by_row import CscEvaluator

        train, exact, rules = prepared.train, PRECISIONS["f64"], NewtonRules(self.config.tol)
        kernel = self.kernel(exact, train.x.values.device.type)
        layout = exact_layout(train)
        if layout is not None:
            counter = "certification_evaluations"
            evaluator = CscEvaluator(layout, kernel, exact, self.counts, counter)
        else:
            assert train.chunker is not None
            evaluator = self.row_evaluator(train.x, train.dense, train.chunker, exact)
        # Paths that sum labels on every pass have no label sums: they are made here, once.
        sums = train.constants
        if train.dense is not None:
            sums = constants(train.x, train.labels, train.grid, self.penalty)
        rows = dataclasses.replace(train, constants=sums, evaluator=evaluator, layout=layout)
        polisher = Polisher(sums, lambda: _ranked(layout, train.x), kernel, solution, self.counts, rules)
        cheap = self.cheap(train) if layout is train.layout else None
        verdict = NativeStep().verdict if self.native(train.x) else None
        losses = self.config.metrics and layout is not None
        return Certifier(rows, polisher, solution, self.counts, rules, cheap, verdict, losses)


def _ranked(layout: Layout | None, x: Csr) -> tuple[Layout, Tensor]:
    """A layout of all events, and the rank in it of each latent in the order that pairs are numbered in."""
    import torch

    from perfsweep.workloads.probe1d.maths.buckets import build_layout, to_csc

    if layout is not None:
        return layout, torch.arange(x.latents, device=x.values.device)
    made = build_layout(to_csc(x), x.values.dtype)
    return made, torch.argsort(made.order)


VARIANTS = (Variant(SOLVER, {"late": Late, "newton": Newton}),)
