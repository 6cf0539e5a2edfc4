"""From the choices of an arm to its paths."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from perfsweep.workloads.probe1d.choices import Choices
from perfsweep.workloads.probe1d.config import Probe1DConfig
from perfsweep.workloads.probe1d.counters import Counts
from perfsweep.workloads.probe1d.data.problem import (
    Constants,
    Csr,
    Labels,
    ProbeData,
    constants,
    labelled_constants,
    rms_scale,
)
from perfsweep.workloads.probe1d.maths.blocks import Block
from perfsweep.workloads.probe1d.maths.buckets import Layout, build_layout, reorder, to_csc
from perfsweep.workloads.probe1d.maths.certify import Certifier
from perfsweep.workloads.probe1d.maths.chunks import (
    CachedChunks,
    Chunker,
    EventChunks,
    PlannedChunks,
    RebuiltChunks,
)
from perfsweep.workloads.probe1d.maths.confusion import ScannedConfusion, SearchedConfusion
from perfsweep.workloads.probe1d.maths.derivatives import Evaluator
from perfsweep.workloads.probe1d.maths.event_sums import BucketKernel, CompiledKernel, EagerKernel
from perfsweep.workloads.probe1d.maths.ill_conditioned import above_rounding, ill_conditioned
from perfsweep.workloads.probe1d.maths.job import CountConfusion
from perfsweep.workloads.probe1d.maths.levenberg_marquardt_solver import (
    DampingOptions,
    LevenbergMarquardtSolver,
)
from perfsweep.workloads.probe1d.maths.newton import (
    DECREMENT_TOL,
    FLOAT32_MARGIN,
    NewtonRules,
    NewtonSolver,
    torch_step,
)
from perfsweep.workloads.probe1d.maths.pass_log import DeviceLog, WaitingLog
from perfsweep.workloads.probe1d.maths.pass_timing import NoHook
from perfsweep.workloads.probe1d.maths.polish import Polisher
from perfsweep.workloads.probe1d.maths.precision import BLOCK_EVENTS, PRECISIONS, Precision
from perfsweep.workloads.probe1d.maths.prepared_rows import Prepared, PreparedRows
from perfsweep.workloads.probe1d.maths.scale_statistics import metric_scale, rms_by_pass
from perfsweep.workloads.probe1d.maths.separable import TAIL_LOSS, binary_start
from perfsweep.workloads.probe1d.maths.solution import Solution
from perfsweep.workloads.probe1d.maths.sums_by_latent import CscEvaluator
from perfsweep.workloads.probe1d.maths.sums_by_row import LabelFreeCsr, LabelledCsr

if TYPE_CHECKING:
    from perfsweep.workloads.probe1d.kernels.native_step import NativeStep
    from perfsweep.workloads.probe1d.kernels.node_start import NodeStart

CACHE_BYTES = 2**21
"""Second-level cache of one core that chunk_events=auto fills; 2 MiB is common on servers."""
GPU_CHUNK_EVENTS = 2**22


@dataclass(frozen=True)
class Builder:
    """Makes the paths of one arm.

    Attributes
    ----------
    sink : takes one row of metrics per pass
    hook, phase : what marks passes and phases
    """

    choices: Choices
    config: Probe1DConfig
    counts: Counts
    sink: Callable[[Mapping[str, float]], None]
    hook: NoHook
    phase: Callable[[str], AbstractContextManager[Any]]

    def prepare(self, data: ProbeData, grid: Tensor) -> Prepared:
        """Make sums that are made once, and sort."""
        with self.phase("prepare"):
            train = self._rows(data.x, data.labels, grid)
        held_out = None
        if self.config.metrics and data.x_val is not None and data.labels_val is not None:
            with self.phase("prepare_held_out"):
                uncounted = dataclasses.replace(self, counts=Counts())
                held_out = uncounted._rows(data.x_val, data.labels_val, grid)
        return Prepared(train, held_out)

    def _rows(self, x: Csr, labels: Labels, grid: Tensor) -> PreparedRows:
        choices = self.choices
        sums = self._constants(x, labels, grid)
        metric = metric_scale(x, choices.qx_stat, sums.count, sums.scale, self.counts)
        if choices.csc_layout:
            return self._by_latent(x, labels, grid, sums, metric)
        chunker = self._chunker(x, grid.numel())
        dense = None if choices.label_free else labels.dense(grid)
        evaluator = self._row_evaluator(x, dense, chunker, choices.precision)
        return PreparedRows(x, labels, grid, sums, metric, evaluator, sums.count, chunker, dense=dense)

    def _by_latent(
        self, x: Csr, labels: Labels, grid: Tensor, sums: Constants, metric: Tensor
    ) -> PreparedRows:
        layout = build_layout(to_csc(x), self.choices.precision.compute)
        self.counts.add("padded_slots", layout.padded)
        self.counts.add("stored_events", x.nnz)
        evaluator = self._bucket_evaluator(layout, self.choices.precision, x)
        sums, metric = reorder(sums, layout.order), metric[layout.order]
        return PreparedRows(x, labels, grid, sums, metric, evaluator, layout.slots, layout=layout)

    def _constants(self, x: Csr, labels: Labels, grid: Tensor) -> Constants:
        make = constants if self.choices.label_free else labelled_constants
        sums = make(x, labels, grid, self.choices.penalty(self.config))
        if self.choices.qx_stat != "rms":
            return sums
        number, squares = rms_by_pass(x, self.counts)
        return dataclasses.replace(sums, count=number.double(), scale=rms_scale(number, squares))

    def _chunker(self, x: Csr, classes: int) -> Chunker:
        """How an arm walks over events stored by row."""
        choices = self.choices
        limit = choices.chunk_limit(CACHE_BYTES, classes)
        if x.values.is_cuda and choices.chunk_events == "auto":
            limit = GPU_CHUNK_EVENTS
        if choices.label_free:
            return EventChunks(x, limit)
        if choices.cache_row_idx:
            return CachedChunks(x, limit, self.counts)
        return (PlannedChunks if choices.solver == "late" else RebuiltChunks)(x, limit, self.counts)

    def _row_evaluator(
        self, x: Csr, dense: Tensor | None, chunker: Chunker, precision: Precision
    ) -> Evaluator:
        """The pass over activations stored by row, with labels where `dense` holds them."""
        if dense is None:
            return LabelFreeCsr(x, chunker, precision, self.choices.cast_once, self.counts)
        return LabelledCsr(x, dense, chunker, precision, self.choices.cast_once, self.counts)

    def _bucket_evaluator(self, layout: Layout, precision: Precision, x: Csr) -> CscEvaluator:
        kernel = self._kernel(precision, x.values.device.type)
        return CscEvaluator(layout, kernel, precision, self.counts)

    def _kernel(self, precision: Precision, device: str) -> BucketKernel:
        """Operators one by one, one generated loop, or a hand-written kernel."""
        if not self.choices.fused_kernel:
            return (CompiledKernel if self.choices.compile else EagerKernel)(precision, self.counts)
        if device == "cuda":
            from perfsweep.workloads.probe1d.kernels.triton_kernel import TritonKernel

            return TritonKernel(precision, self.counts)
        from perfsweep.workloads.probe1d.kernels.native import NativeKernel

        return NativeKernel(precision, self.counts)

    def solver(self, prepared: Prepared, solution: Solution) -> Callable[[int, Tensor], Iterator[None]]:
        """The passes over the slab of a number, whose classes are at given columns of the grid."""
        newton = self.choices.solver == "newton"
        solver = (self._newton if newton else self._damped)(prepared, solution)
        rows, flat = prepared.train, self.choices.active_set == "pair"
        dtype = torch.float64 if newton else rows.evaluator.precision.sums
        float32 = newton and rows.evaluator.precision.compute == torch.float32
        near = self._near(rows)

        def solve(number: int, columns: Tensor) -> Iterator[None]:
            block = rows.block(columns, dtype, flat=flat)
            block = above_rounding(block, DECREMENT_TOL) if float32 else block
            return solver.solve(number, block, *self._start(rows, block, near))

        return solve

    def _near(self, rows: PreparedRows) -> NodeStart | None:
        """Starts on nodes: part of the CPU's hand-written kernel for float32 events."""
        float32 = self.choices.precision.compute == torch.float32
        if self.choices.warm_start == "off" or not (self._native(rows.x) and float32):
            return None
        assert rows.layout is not None
        from perfsweep.workloads.probe1d.kernels.node_start import NodeStart

        return NodeStart(rows.layout, rows.constants.count)

    def _start(self, rows: PreparedRows, block: Block, near: NodeStart | None) -> tuple[Tensor, Tensor]:
        """Where the solver begins: the prior, or the binary solution, or from there one on nodes."""
        if self.choices.warm_start == "off":
            return block.prior.clone(), torch.zeros_like(block.prior)
        self.counts.add("warm_pairs", block.pair.numel())
        if near is not None:
            return near(block, self.config.tol)
        # In float64 throughout: shares close to one have no logit in float32.
        sum_x = rows.constants.sum_x[block.latent].unsqueeze(1)
        b, w = binary_start(block.double(), sum_x, self.config.tol)
        return b.to(block.prior.dtype), w.to(block.prior.dtype)

    def _log(self) -> WaitingLog | DeviceLog:
        if self.choices.no_sync_log:
            return DeviceLog(self.counts, self.sink)
        return WaitingLog(self.counts, self.sink, self.config.debug_log)

    def _damped(self, prepared: Prepared, solution: Solution) -> LevenbergMarquardtSolver:
        """The report-time form or the later one."""
        choices, rows = self.choices, prepared.train
        options = DampingOptions(
            scaled=choices.scaled_stop,
            skip_zero=choices.skip_zero_grad,
            freeze_after=choices.freeze_failed,
            compact=choices.active_set != "off",
            tol=self.config.tol,
        )
        return LevenbergMarquardtSolver(
            choices.rules(self.config),
            options,
            rows.evaluator,
            rows.metric,
            self._log(),
            self.hook,
            self.counts,
            solution,
            self.phase,
        )

    def _newton(self, prepared: Prepared, solution: Solution) -> NewtonSolver:
        """The optimised solver."""
        choices, rows = self.choices, prepared.train
        margin = self._margin()
        rules = NewtonRules(
            self.config.tol * margin,
            DECREMENT_TOL * margin,
            TAIL_LOSS * margin,
            max_iter=self.config.max_iter or 100,
        )
        return NewtonSolver(
            rules,
            rows.evaluator,
            self._log(),
            self.hook,
            self.counts,
            solution,
            compact=choices.active_set != "off",
            metric=rows.metric,
            phase=self.phase,
            # Every pair is evaluated once more anyway, so the bound on its last step is enough.
            reach=rows.reach(),
            least=rows.least() if choices.label_free else None,
            ill_conditioned=ill_conditioned(rows.constants),
            step=self._native_step(rows.x) or torch_step,
            rounding=self._rounding(rows),
        )

    def _rounding(self, rows: PreparedRows) -> tuple[Tensor | None, Tensor | None]:
        """What bounds the rounding of the native kernel's float32 sums over all events, of each latent."""
        float32 = self.choices.precision.compute == torch.float32
        if not (self._native(rows.x) and float32):
            return None, None
        return rows.slots.clamp(max=BLOCK_EVENTS), rows.positive().double()

    def _native(self, x: Csr) -> bool:
        """Whether the CPU's hand-written kernels run."""
        return self.choices.fused_kernel and x.values.device.type == "cpu"

    def _native_step(self, x: Csr) -> NativeStep | None:
        """Step and verdict in one loop each."""
        if not self._native(x):
            return None
        from perfsweep.workloads.probe1d.kernels.native_step import NativeStep

        return NativeStep()

    def _margin(self) -> float:
        """Share of the tolerance at which lanes stop, so that certification rarely fails."""
        exact = self.choices.precision.compute == torch.float64
        return 1.0 if exact else FLOAT32_MARGIN

    def certifier(self, prepared: Prepared, solution: Solution) -> Certifier | None:
        """What has the last word on every pair, by the arm's pass in float64; None: the solver has."""
        choices, train = self.choices, prepared.train
        if not choices.certified:
            return None
        rules, kernel = (
            NewtonRules(self.config.tol),
            self._kernel(PRECISIONS["f64"], train.x.values.device.type),
        )
        layout = self._exact_layout(train)
        if layout is not None:
            counter = "certification_evaluations"
            evaluator = CscEvaluator(layout, kernel, PRECISIONS["f64"], self.counts, counter)
        else:
            assert train.chunker is not None
            evaluator = self._row_evaluator(train.x, train.dense, train.chunker, PRECISIONS["f64"])
        # Paths that sum labels on every pass have no label sums: they are made here, once.
        sums = train.constants
        if not choices.label_free:
            sums = constants(train.x, train.labels, train.grid, self.choices.penalty(self.config))
        rows = dataclasses.replace(train, constants=sums, evaluator=evaluator, layout=layout)
        polisher = Polisher(sums, lambda: _ranked(layout, train.x), kernel, solution, self.counts, rules)
        cheap = self._cheap(train) if layout is train.layout else None
        native = self._native_step(train.x)
        verdict = None if native is None else native.verdict
        losses = self.config.metrics and layout is not None
        return Certifier(rows, polisher, solution, self.counts, rules, cheap, verdict, losses)

    def _cheap(self, train: PreparedRows) -> PreparedRows | None:
        """Sums that certify most pairs at less cost than float64: of events in float32."""
        if train.layout is None or self.choices.precision.compute != torch.float32:
            return None
        if not self.choices.fused_kernel:
            return train
        # The hand-written kernels add in blocks at no cost.
        evaluator = self._bucket_evaluator(train.layout, PRECISIONS["block"], train.x)
        return dataclasses.replace(train, evaluator=evaluator)

    def _exact_layout(self, train: PreparedRows) -> Layout | None:
        """The layout of events as they are stored: the arm's own unless that rounds float64 values."""
        if train.layout is None or train.x.values.dtype != torch.float64:
            return train.layout
        rounded = any(bucket.x.dtype != torch.float64 for bucket in train.layout.buckets)
        return build_layout(to_csc(train.x), torch.float64) if rounded else train.layout

    def confusion(self, train: PreparedRows) -> CountConfusion:
        """What counts true and false positives of a slab."""
        x, labels, grid = train.x, train.labels, train.grid
        if self.choices.confusion_search and self._native(x):
            from perfsweep.workloads.probe1d.kernels.native_counts import NativeCounts

            layout = self._exact_layout(train)
            assert layout is not None
            return NativeCounts(x, labels, grid, layout, train.constants.count, self.counts)
        if self.choices.confusion_search:
            ranks = ill_conditioned(train.constants).nonzero().squeeze(1)
            ill = ranks if train.order is None else train.order[ranks]
            return SearchedConfusion(x, labels, grid, self.counts, ill)
        # With labels dropped from the passes the walk by rows is still needed here: predictions meet labels.
        kind = CachedChunks if self.choices.cache_row_idx else RebuiltChunks
        limit = self.choices.chunk_limit(CACHE_BYTES, grid.numel())

        def chunker() -> Chunker:
            walked = train.chunker if train.dense is not None else None
            return walked or kind(x, limit, self.counts)

        return ScannedConfusion(x, labels, grid, train.dense, chunker, self.counts)


def _ranked(layout: Layout | None, x: Csr) -> tuple[Layout, Tensor]:
    """A layout of all events, and the rank in it of each latent in the order that pairs are numbered in."""
    if layout is not None:
        return layout, torch.arange(x.latents, device=x.values.device)
    made = build_layout(to_csc(x), x.values.dtype)
    return made, torch.argsort(made.order)
