"""One job from activations stored by row to probes: prepare, solve slab by slab, certify, describe."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from workloads.probe1d.build import Choices
from workloads.probe1d.config import Probe1DConfig
from workloads.probe1d.counters import Counts
from workloads.probe1d.data.grid import Solution, slabs
from workloads.probe1d.data.problem import ProbeData
from workloads.probe1d.maths.certify import Certifier, CscGradient, PassGradient
from workloads.probe1d.maths.chunks import CachedChunks, RebuiltChunks
from workloads.probe1d.maths.compress import compress_layout
from workloads.probe1d.maths.confusion import Confusion, confusion_by_events, confusion_by_search, sort_events
from workloads.probe1d.maths.csc import CscEvaluator
from workloads.probe1d.maths.derivatives import Block
from workloads.probe1d.maths.hooks import NoHook
from workloads.probe1d.maths.newton import FLOAT32_MARGIN, NewtonRules, NewtonSolver, binary_start
from workloads.probe1d.maths.passlog import DeviceLog, WaitingLog
from workloads.probe1d.maths.precision import PRECISIONS
from workloads.probe1d.maths.slabs import LmOptions, SlabSolver
from workloads.probe1d.maths.summary import mean_loss
from workloads.probe1d.maths.view import View, float64_evaluator, make_kernel, make_view

NODE_TOL = 0.1
"""Share of the tolerance to which pairs are solved on nodes: what is left to the nodes' own error."""

Phase = Callable[[str], AbstractContextManager[Any]]


@dataclass(frozen=True)
class Task:
    """What a job is given; `sink` takes one row of metrics per pass."""

    data: ProbeData
    grid: Tensor
    config: Probe1DConfig
    choices: Choices
    counts: Counts
    hook: NoHook
    phase: Phase
    sink: Callable[[Mapping[str, float]], None]


@dataclass(frozen=True)
class Prepared:
    """Everything made once per job (or once per process, where sorting is amortised)."""

    train: View
    solving: View
    held_out: View | None


def prepare(task: Task) -> Prepared:
    """Sums made once, sorting, compression."""
    data, choices, counts = task.data, task.choices, task.counts
    with task.phase("prepare"):
        train = make_view(data.x, data.labels, task.grid, choices, counts)
    held_out = None
    if task.config.metrics and data.x_val is not None and data.labels_val is not None:
        with task.phase("prepare_held_out"):
            held_out = make_view(data.x_val, data.labels_val, task.grid, choices, Counts())
    with task.phase("compress"):
        solving = _compressed(train, choices, counts) if choices.compress else train
    return Prepared(train, solving, held_out)


def _compressed(train: View, choices: Choices, counts: Counts) -> View:
    """The view of the solver: nodes in place of events. Nodes are few, so they are summed in float64."""
    assert train.layout is not None
    layout = compress_layout(train.layout, train.constants.count, choices.compress)
    counts.add("nodes", layout.padded)
    precision = PRECISIONS["f64"]
    kernel = make_kernel(choices, precision, counts, train.x.values.device.type)
    evaluator = CscEvaluator(layout, kernel, precision, counts)
    fields = {name: getattr(train, name) for name in train.__dataclass_fields__}
    return View(**{**fields, "layout": layout, "evaluator": evaluator, "slots": layout.slots})


class Job:
    """One job. `passes` runs it; results are then in `solution` and `results`."""

    def __init__(self, task: Task, prepared: Prepared | None) -> None:
        self.task, self.given = task, prepared
        self.solved_pairs = 0
        self.solution = Solution.empty(task.data.x.latents, task.grid.numel(), task.data.x.values.device)
        self.results: dict[str, Tensor] = {}
        self.prepared: Prepared | None = prepared

    def passes(self) -> Iterator[None]:
        """The whole job; yields before each iteration (preparation, slab passes, description of a slab)."""
        yield
        self.task.hook.job_begins()
        prepared = self.prepared = self.given or prepare(self.task)
        solve = self._newton(prepared) if self.task.choices.solver == "newton" else self._damped(prepared)
        certifier = self._certifier(prepared)
        latents = self.task.data.x.latents
        for number, columns in enumerate(self._slabs()):
            prepared.solving.evaluator.begin(columns)
            yield from solve(number, columns)
            if certifier is not None:
                with self.task.phase("certify"):
                    self._certify(certifier, prepared.train, number, columns)
            self.solved_pairs += latents * columns.numel()
        self.results = self.solution.by_latent(prepared.train.order)
        if self.task.config.metrics:
            yield from self._describe(prepared)
        self.task.hook.job_ends()

    def _slabs(self) -> Iterator[Tensor]:
        device = self.task.grid.device
        return (columns.to(device) for columns in slabs(self.task.grid.numel(), self.task.choices.slab_size))

    def _start(self, view: View, block: Block) -> tuple[Tensor, Tensor]:
        """Where the solver begins: the prior, or the binary solution."""
        if self.task.choices.warm_start == "off":
            return block.prior.clone(), torch.zeros_like(block.prior)
        self.task.counts.add("warm_pairs", block.pair.numel())
        # In float64 throughout: shares close to one have no logit in float32.
        sum_x = view.constants.sum_x[block.latent].unsqueeze(1)
        b, w = binary_start(block.double(), sum_x, self.task.config.tol)
        return b.to(block.prior.dtype), w.to(block.prior.dtype)

    def _log(self) -> WaitingLog | DeviceLog:
        task = self.task
        if task.choices.no_sync_log:
            return DeviceLog(task.counts, task.sink)
        return WaitingLog(task.counts, task.sink, task.config.debug_log)

    def _damped(self, prepared: Prepared) -> Callable[[int, Tensor], Iterator[None]]:
        """Passes of the report-time form or the later one."""
        task, choices, view = self.task, self.task.choices, prepared.solving
        rules = choices.rules(task.config)
        options = LmOptions(
            scaled=choices.scaled_stop,
            skip_zero=choices.skip_zero_grad,
            freeze_after=choices.freeze_failed,
            compact=choices.active_set != "off",
            tol=task.config.tol * (NODE_TOL if choices.compress else 1),
        )
        solver = SlabSolver(
            rules,
            options,
            view.evaluator,
            view.metric,
            self._log(),
            task.hook,
            task.counts,
            self.solution,
            task.phase,
        )

        def solve(number: int, columns: Tensor) -> Iterator[None]:
            block = view.block(columns, view.evaluator.precision.sums, flat=choices.active_set == "pair")
            return solver.solve(number, block, *self._start(view, block))

        return solve

    def _newton(self, prepared: Prepared) -> Callable[[int, Tensor], Iterator[None]]:
        """Passes of the optimised solver."""
        task, choices, view = self.task, self.task.choices, prepared.solving
        tol, limit = task.config.tol * self._margin(), task.config.max_iter or 100
        rules = NewtonRules(tol, max_iter=limit, tails=choices.tail_steps)
        solver = NewtonSolver(
            rules,
            view.evaluator,
            self._log(),
            task.hook,
            task.counts,
            self.solution,
            compact=choices.active_set != "off",
            metric=view.metric,
            phase=task.phase,
            # Only where every pair is evaluated once more anyway is the bound on its last step enough.
            reach=None if self._certifier(prepared) is None else view.reach(),
            least=view.least() if choices.label_free else None,
        )

        def solve(number: int, columns: Tensor) -> Iterator[None]:
            block = view.block(columns, torch.float64, flat=choices.active_set == "pair")
            return solver.solve(number, block, *self._start(view, block))

        return solve

    def _margin(self) -> float:
        """Share of the tolerance at which lanes stop, so that certification rarely fails."""
        if self.task.choices.compress:
            return NODE_TOL
        return 1.0 if self.task.choices.precision.compute == torch.float64 else FLOAT32_MARGIN

    def _certifier(self, prepared: Prepared) -> Certifier | None:
        """Needed by the optimised solver unless it evaluated in float64 already, and by every use of
        compression."""
        task, choices = self.task, self.task.choices
        exact = choices.precision.compute == torch.float64 and not choices.compress
        if exact or (choices.solver != "newton" and not choices.compress):
            return None
        evaluator = float64_evaluator(prepared.train, choices, task.counts)
        separable = choices.csc_layout
        source = CscGradient(evaluator) if isinstance(evaluator, CscEvaluator) else PassGradient(evaluator)
        return Certifier(source, evaluator, self.solution, task.counts, task.config.tol, separable)

    def _certify(self, certifier: Certifier, view: View, number: int, columns: Tensor) -> None:
        certifier.evaluator.begin(columns)
        certifier.certify(number, view.block(columns, torch.float64, flat=view.layout is not None))

    def _describe(self, prepared: Prepared) -> Iterator[None]:
        """Loss matrices and confusion counts, slab by slab; parameters are those that are written to a
        file."""
        describe = _Describer(self.task, prepared, self.results["b"].float(), self.results["w"].float())
        for columns in self._slabs():
            yield
            describe.slab(columns)
        self.results |= describe.results


class _Describer:
    """Fills the result matrices [L, C] that are not parameters."""

    def __init__(self, task: Task, prepared: Prepared, b: Tensor, w: Tensor) -> None:
        self.task, self.prepared, self.b, self.w = task, prepared, b, w
        names = ["loss", *(["loss_val"] if prepared.held_out else [])]
        self.results = {name: torch.zeros_like(b) for name in names}
        self.results |= {name: torch.zeros_like(b, dtype=torch.int64) for name in ("tp", "fp", "tn", "fn")}
        self.events: Any = None

    def slab(self, columns: Tensor) -> None:
        """Losses and counts of the classes at `columns`."""
        with self.task.phase("loss"):
            self._loss("loss", self.prepared.train, columns)
            if self.prepared.held_out is not None:
                self._loss("loss_val", self.prepared.held_out, columns)
        with self.task.phase("confusion"):
            found = self._confusion(columns)
        for name in ("tp", "fp", "tn", "fn"):
            self.results[name][:, columns] = getattr(found, name)

    def _loss(self, name: str, view: View, columns: Tensor) -> None:
        b, w = self.b[:, columns], self.w[:, columns]
        if view.order is None:
            self.results[name][:, columns] = mean_loss(view, columns, b, w).float()
            return
        found = mean_loss(view, columns, b[view.order], w[view.order]).float()
        self.results[name][:, columns] = torch.empty_like(found).index_copy_(0, view.order, found)

    def _confusion(self, columns: Tensor) -> Confusion:
        task, train = self.task, self.prepared.train
        positives = train.constants.positives[columns].long()
        b, w = self.b[:, columns], self.w[:, columns]
        if task.choices.confusion_search:
            if self.events is None:
                self.events = sort_events(train.x, train.labels, task.grid)
            return confusion_by_search(self.events, columns, train.x.rows, positives, b, w, task.counts)
        # With labels dropped from the passes the walk by rows is still needed here: predictions meet labels.
        chunker = train.chunker if train.dense is not None else None
        if chunker is None:
            kind = CachedChunks if task.choices.cache_row_idx else RebuiltChunks
            chunker = kind(train.x, task.choices.chunk_limit(2**21, task.grid.numel()), task.counts)
        labels = (
            train.dense[:, columns] if train.dense is not None else train.labels.dense(task.grid[columns])
        )
        return confusion_by_events(train.x, labels, positives, chunker, b, w, task.counts)
