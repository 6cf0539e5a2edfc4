"""The naive path of field report 000, as its solver had it (OSU-NLP-Group/saev), restated from its behaviour.

Read it first: one damped Newton solver for all (latent, class) pairs of a slab of classes in lock step, whose
every pass walks over all stored activations, row by row. It knows no toggle. Each toggle is a class in
`variants` that replaces some of these methods; an arm is this class with those of its levels before it.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from perfsweep.workloads.api import Levels
from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.probe1d.config import Probe1DConfig
from perfsweep.workloads.probe1d.counters import Counts
from perfsweep.workloads.probe1d.data.problem import (
    REPORT,
    Constants,
    Csr,
    Labels,
    Penalty,
    ProbeData,
    labelled_constants,
    rms_scale,
)
from perfsweep.workloads.probe1d.maths.blocks import Block, Reason, Solution
from perfsweep.workloads.probe1d.maths.buckets import Chunker, RebuiltChunks
from perfsweep.workloads.probe1d.maths.certify import Certifier
from perfsweep.workloads.probe1d.maths.confusion import ScannedConfusion
from perfsweep.workloads.probe1d.maths.derivatives import Derivatives, Evaluator, combine, scaled_gradient
from perfsweep.workloads.probe1d.maths.job import CountConfusion, Phase
from perfsweep.workloads.probe1d.maths.levenberg_marquardt import (
    NAIVE,
    DampingRules,
    DampingState,
    Retries,
    Step,
    adapt_damping,
    rms_by_pass,
    step_metric,
)
from perfsweep.workloads.probe1d.maths.pass_log import DeviceLog, NoHook, PassFacts, WaitingLog
from perfsweep.workloads.probe1d.maths.precision import PRECISIONS, Precision
from perfsweep.workloads.probe1d.maths.prepared_rows import Prepared, PreparedRows
from perfsweep.workloads.probe1d.maths.sums_by_row import LabelledCsr

STATE_ARRAYS = 35
"""Arrays of [L, slab] that the solver keeps at once."""
CHUNK_ARRAYS = 12
"""Arrays of [chunk, slab] that one chunk of a pass needs at once."""


@dataclass
class Slab:
    """A slab in work: its pairs [R, c], and what is kept on the device until it ends.

    `metric` [L] is the unit of w in steps. `frozen` pairs take no more steps. `over` is a flag on the device:
    the host may learn it some passes late, all of which are masked and move nothing.
    """

    block: Block
    metric: Tensor
    state: DampingState
    frozen: Tensor
    evals: Tensor
    gmax: Tensor
    over: Tensor
    tally: Tally

    @classmethod
    def start(cls, block: Block, metric: Tensor, b: Tensor, w: Tensor) -> Slab:
        """Before the first pass, at (b, w)."""
        no = torch.zeros_like(b, dtype=torch.bool)
        over = torch.zeros((), dtype=torch.bool, device=b.device)
        state, evals = DampingState.start(b, w), torch.zeros_like(b, dtype=torch.int32)
        return cls(block, metric, state, no, evals, torch.zeros_like(b), over, Tally(b.device))

    def select(self, keep: Tensor) -> None:
        """Leave out all rows but those named by the int64 index `keep`."""
        self.block, self.state = self.block.select(keep), self.state.select(keep)
        self.frozen, self.evals, self.gmax = self.frozen[keep], self.evals[keep], self.gmax[keep]


class Tally:
    """What a slab's counters need of every pass: largest damping of dead and of live pairs, pairs skipped."""

    def __init__(self, device: torch.device) -> None:
        self.lam = torch.zeros(2, dtype=torch.float64, device=device)
        self.skipped = torch.zeros((), dtype=torch.float64, device=device)

    def see(self, lam: Tensor, count: Tensor) -> None:
        """Note the damping of a pass."""
        dead = (count == 0).expand_as(lam)
        zero = torch.zeros_like(lam)
        now = torch.stack([torch.where(dead, lam, zero).max(), torch.where(dead, zero, lam).max()])
        self.lam = torch.maximum(self.lam, now.double())

    def publish(self, counts: Counts) -> None:
        """Add the slab to the counts: one wait."""
        dead, live, skipped = counts.read_all(torch.cat([self.lam, self.skipped.unsqueeze(0)]))
        counts.top("lambda_max_dead", dead)
        counts.top("lambda_max_live", live)
        counts.top("lambda_max", max(dead, live))
        counts.add("skipped_zero_grad", skipped)


class Reference:
    """The naive path. It takes an arm's levels for its variants, and looks at none of them.

    Parameters
    ----------
    levels : of all toggles
    sink : takes one row of metrics per pass
    phase : marks phases
    """

    cast_once = False
    """Whether stored values are cast to the type of the passes once."""
    compact = False
    """Whether every pair is a row of its own, and leaves the passes once it is done."""

    def __init__(
        self,
        levels: Levels,
        config: Probe1DConfig,
        counts: Counts,
        sink: Callable[[Mapping[str, float]], None],
        phase: Phase,
        device: str = "cpu",
    ) -> None:
        self.levels, self.config, self.counts, self.sink, self.phase = levels, config, counts, sink, phase
        self.hook, self.log = self.pass_hook(device), self.pass_log()

    # What is made once per job.

    def prepare(self, data: ProbeData, grid: Tensor) -> Prepared:
        """Make sums that are made once; with metrics for held-out rows too."""
        with self.phase("prepare"):
            train = self.prepared_rows(data.x, data.labels, grid)
        held_out = None
        if self.config.metrics and data.x_val is not None and data.labels_val is not None:
            with self.phase("prepare_held_out"):
                uncounted = copy.copy(self)
                uncounted.counts = Counts()
                held_out = uncounted.prepared_rows(data.x_val, data.labels_val, grid)
        return Prepared(train, held_out)

    def prepared_rows(self, x: Csr, labels: Labels, grid: Tensor) -> PreparedRows:
        """Rows as the passes take them."""
        sums = self.scaled(x, self.label_sums(x, labels, grid))
        return self.rows(x, labels, grid, sums, self.metric(x, sums))

    def label_sums(self, x: Csr, labels: Labels, grid: Tensor) -> Constants:
        """Constants of the objective; sums of labels are left to the passes."""
        return labelled_constants(x, labels, grid, self.penalty)

    @property
    def usual_penalty(self) -> Penalty:
        """That of the report."""
        return REPORT

    @property
    def penalty(self) -> Penalty:
        """What is added to the loss."""
        usual = self.usual_penalty
        return usual if self.config.ridge is None else dataclasses.replace(usual, ridge=self.config.ridge)

    def scaled(self, x: Csr, sums: Constants) -> Constants:
        """The root mean square of each latent, by a pass of its own."""
        number, squares = rms_by_pass(x, self.counts)
        return dataclasses.replace(sums, count=number.double(), scale=rms_scale(number, squares))

    def metric(self, x: Csr, sums: Constants) -> Tensor:
        """The unit of w in the step metric, float64 [L]."""
        return sums.scale

    def rows(self, x: Csr, labels: Labels, grid: Tensor, sums: Constants, metric: Tensor) -> PreparedRows:
        """Activations stay as they are stored, by row."""
        chunker, dense = self.chunker(x, grid.numel()), labels.dense(grid)
        evaluator = self.row_evaluator(x, dense, chunker, self.precision)
        return PreparedRows(x, labels, grid, sums, metric, evaluator, sums.count, chunker, dense=dense)

    @property
    def precision(self) -> Precision:
        """Type of events and of their sums."""
        return PRECISIONS["f32"]

    # One pass: a walk over all stored activations.

    def row_evaluator(
        self, x: Csr, dense: Tensor | None, chunker: Chunker, precision: Precision
    ) -> Evaluator:
        """Sums over activations stored by row, with the labels `dense` [N, C] gathered for every event."""
        assert dense is not None
        return LabelledCsr(x, dense, chunker, precision, self.cast_once, self.counts)

    def chunker(self, x: Csr, classes: int) -> Chunker:
        """How a pass walks over events."""
        return self.row_chunks(x, self.chunk_limit(classes, x.values.is_cuda))

    def row_chunks(self, x: Csr, limit: int) -> Chunker:
        """Chunks of at least `limit` events, whose boundaries and row indices every pass makes again."""
        return RebuiltChunks(x, limit, self.counts)

    def chunk_limit(self, classes: int, cuda: bool = False) -> int:
        """Events of a chunk."""
        return int(self.levels["chunk_events"])

    # All passes of a slab.

    def solver(self, prepared: Prepared, solution: Solution) -> Callable[[int, Tensor], Iterator[None]]:
        """The passes over the slab of a number, of the classes at given columns of the grid."""
        rows = prepared.train
        passes, start = self.passes(rows, solution), self.start(rows)

        def solve(number: int, columns: Tensor) -> Iterator[None]:
            block = self.block(rows, columns)
            return passes(number, block, *start(block))

        return solve

    def block(self, rows: PreparedRows, columns: Tensor) -> Block:
        """Constants of the pairs of a slab."""
        return rows.block(columns, self.precision.sums, flat=self.compact)

    def start(self, rows: PreparedRows) -> Callable[[Block], tuple[Tensor, Tensor]]:
        """Where the solver begins: at the prior of each class."""
        return lambda block: (block.prior.clone(), torch.zeros_like(block.prior))

    def passes(
        self, rows: PreparedRows, solution: Solution
    ) -> Callable[[int, Block, Tensor, Tensor], Iterator[None]]:
        """Damped Newton passes (Levenberg-Marquardt) from (b, w) until all pairs of the slab stop."""

        def run(number: int, block: Block, b: Tensor, w: Tensor) -> Iterator[None]:
            slab = Slab.start(block, rows.metric, b, w)
            most = self.config.max_iter or self.rules.max_iter
            self.log.begin(most, b.device)
            for _ in range(most):
                yield
                self.hook.pass_begins(number)
                if self.one_pass(rows, slab) or self.left_none(solution, slab):
                    break
            self.store(solution, slab)
            self.hook.slab_ends()
            self.log.finish()
            slab.tally.publish(self.counts)
            self.counts.add("slabs")

        return run

    @property
    def rules(self) -> DampingRules:
        """Constants of the solver."""
        return NAIVE

    def one_pass(self, rows: PreparedRows, slab: Slab) -> bool:
        """Evaluate, step and log; whether the host knows that the slab has ended."""
        block = slab.block
        with self.phase("statistics"):
            grad = self.evaluate(rows, slab)
        with self.phase("lm_step"):
            gradient = scaled_gradient(block, grad.g0, grad.g1) / (self.unit(block) * block.rows)
            slab.evals += ~slab.over
            slab.gmax = torch.where(slab.over, slab.gmax, gradient)
            slab.over = slab.over | self.stops_before(slab)
            step = self.step(slab, grad, self.wanted(slab, grad))
            self.stepped(slab, step)
            slab.tally.see(step.lam, block.count)
        with self.phase("log"):
            self.log.write(PassFacts(grad.loss, grad.g0, grad.g1, step.lam, step.failed))
            slab.over = slab.over | self.stops_after(grad, step)
            stopped = self.log.stopped(slab.over)
        self.counts.add("slab_passes")
        self.counts.add(f"{self.rules.name}_passes")
        return stopped

    def evaluate(self, rows: PreparedRows, slab: Slab) -> Derivatives:
        """Loss, gradient and Hessian of all pairs at the point they are at."""
        b, w = slab.state.b, slab.state.w
        self.counts.add("pair_evaluations", b.numel())
        sums = rows.evaluator.sums(slab.block, b, w)
        return combine(slab.block, b, w, sums, self.unit(slab.block), self.rules.clip)

    def unit(self, block: Block) -> float:
        """What sums over rows are multiplied with: the report works on sums, not on means."""
        return 1.0

    def stops_before(self, slab: Slab) -> Tensor:
        """Whether the slab ends at this point, bool []: no such test."""
        return torch.zeros_like(slab.over)

    def wanted(self, slab: Slab, grad: Derivatives) -> Tensor:
        """Pairs that take part in the step: all, those without events too."""
        return ~slab.frozen

    @property
    def ignores_noise(self) -> bool:
        """Whether gain ratios that float32 does not resolve leave the damping as it is."""
        return False

    def step(self, slab: Slab, grad: Derivatives, wanted: Tensor) -> Step:
        """Adapt the damping, find a step for every wanted pair, and take it, uphill or not."""
        assert grad.loss is not None
        state, wanted = slab.state, wanted & ~slab.over
        lam = adapt_damping(state, grad.loss, self.ignores_noise)
        scale = slab.metric.to(lam.dtype).index_select(0, slab.block.latent).unsqueeze(1)
        retries = Retries(self.rules, self.log.any_left)
        step, tries = retries(grad, lam, step_metric(self.rules, grad, scale), wanted)
        self.counts.add("retries", max(tries - 1, 0))
        state.b = state.b - step.db
        state.w = state.w - step.dw
        state.lam = torch.where(wanted, step.lam, state.lam)
        # A pair that was left out predicts nothing: its next gain ratio must not count against its damping.
        state.predicted = torch.where(wanted, step.predicted, torch.full_like(lam, torch.nan))
        state.loss, state.clipped = grad.loss, step.clipped
        return step

    def stepped(self, slab: Slab, step: Step) -> None:
        """What follows from a step; nothing, even where it failed."""

    def stops_after(self, grad: Derivatives, step: Step) -> Tensor:
        """Raw gradient and step, on sums, of all pairs at once: the test is out of reach."""
        steepest = torch.maximum(grad.g0.abs(), grad.g1.abs()).max()
        longest = torch.maximum(step.db.abs(), step.dw.abs()).max()
        return (steepest < self.rules.tol) & (longest < self.rules.tol)

    def left_none(self, solution: Solution, slab: Slab) -> bool:
        """Whether pairs that are done have left the slab, and no other is in it: none ever leaves."""
        return False

    def store(self, solution: Solution, slab: Slab) -> None:
        """Write the pairs of the slab as they are."""
        reason = torch.full_like(slab.evals, Reason.BUDGET)
        reason[slab.gmax <= self.config.tol] = Reason.CONVERGED
        reason[slab.frozen] = Reason.FROZEN
        reason[(slab.block.count == 0).expand_as(reason)] = Reason.DEAD
        state = slab.state
        solution.store(slab.block.pair, b=state.b, w=state.w, evals=slab.evals, gmax=slab.gmax, reason=reason)

    def pass_log(self) -> WaitingLog | DeviceLog:
        """What a pass tells the host, which waits for the device several times a pass."""
        return WaitingLog(self.counts, self.sink, self.config.debug_log)

    def pass_hook(self, device: str) -> NoHook:
        """What times each pass: nothing."""
        return NoHook()

    # After the last pass.

    def certifier(self, prepared: Prepared, solution: Solution) -> Certifier | None:
        """What has the last word on every pair: here the solver has."""
        return None

    def confusion(self, train: PreparedRows) -> CountConfusion:
        """What counts true and false positives of a slab: one more walk over all events."""
        limit = self.chunk_limit(train.grid.numel())

        def chunker() -> Chunker:
            # Where passes know no labels, this walk by rows is made for it: predictions meet labels.
            walked = train.chunker if train.dense is not None else None
            return walked or self.row_chunks(train.x, limit)

        return ScannedConfusion(train.x, train.labels, train.grid, train.dense, chunker, self.counts)

    def native(self, x: Csr) -> bool:
        """Whether hand-written kernels of the CPU run, which variants ask."""
        return False

    # Memory.

    @property
    def slab_size(self) -> int | str:
        """Classes solved together, or "all"."""
        size = self.levels["slab_size"]
        return "all" if size == "all" else int(size)

    def slab_width(self, classes: int) -> int:
        """Classes of a slab; a slab wider than the grid means all of it."""
        return classes if self.slab_size == "all" else min(int(self.slab_size), classes)

    def slab_bytes(self, latents: int, classes: int) -> int:
        """Memory of one slab in addition to the data: its state, and the temporaries of one chunk."""
        state = STATE_ARRAYS * latents * self.slab_width(classes) * self.precision.sums.itemsize
        return state + self.chunk_bytes(classes)

    def chunk_bytes(self, classes: int) -> int:
        """Memory of the temporaries of one chunk of a pass."""
        events = self.chunk_limit(classes)
        return CHUNK_ARRAYS * events * self.slab_width(classes) * self.precision.compute.itemsize

    def check_memory(self, budget: int | None, latents: int, classes: int) -> None:
        """Refuse a slab that does not fit.

        Raises
        ------
        ConfigError
            The slab needs more than `budget` bytes; the message names the widest slab that fits.
        """
        needed = self.slab_bytes(latents, classes)
        if budget is None or needed <= budget:
            return
        fits = int(self.slab_width(classes) * budget / needed)
        advice = (
            f"toggles.slab_size={fits} would fit"
            if fits
            else "not even one class fits: raise workload.memory_mb"
        )
        raise ConfigError(
            f"toggles.slab_size={self.slab_size} needs {needed / 2**20:.1f} MiB for {latents} latents and the"
            f" budget is {budget / 2**20:.1f} MiB (workload.memory_mb); {advice}"
        )
