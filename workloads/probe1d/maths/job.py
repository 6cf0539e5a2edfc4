"""One job from activations stored by row to probes: prepare, solve slab by slab, certify, describe."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from perfsweep.workloads.probe1d.config import Probe1DConfig
from perfsweep.workloads.probe1d.data.problem import ProbeData, class_totals
from perfsweep.workloads.probe1d.maths.blocks import Solution, slabs
from perfsweep.workloads.probe1d.maths.certify import Certifier
from perfsweep.workloads.probe1d.maths.confusion import Confusion
from perfsweep.workloads.probe1d.maths.derivatives import cancels, combine, label_free_loss
from perfsweep.workloads.probe1d.maths.ill_conditioned import ill_conditioned, with_exact_losses
from perfsweep.workloads.probe1d.maths.pass_log import NoHook
from perfsweep.workloads.probe1d.maths.prepared_rows import Prepared, PreparedRows
from perfsweep.workloads.probe1d.maths.sums_by_row import CscEvaluator


def mean_loss(rows: PreparedRows, columns: Tensor, b: Tensor, w: Tensor) -> Tensor:
    """Mean negative log-likelihood without penalty, [L, c] in the order of latents of `rows`."""
    evaluator, exact = rows.evaluator, ill_conditioned(rows.constants)
    evaluator.begin(columns)
    block = rows.block(columns, evaluator.precision.sums).unpenalised()
    if isinstance(evaluator, CscEvaluator):
        softplus_sum = evaluator.softplus_sums(block, b, w)
    else:
        near_b, near_w = b.to(block.prior.dtype), w.to(block.prior.dtype)
        sums = evaluator.sums(block, near_b, near_w)
        assert sums.loss is not None
        if sums.labels is not None:
            loss = combine(block, near_b, near_w, sums, 1.0 / block.rows, clip=1e-8).loss
            assert loss is not None
            return with_exact_losses(loss, rows, columns, b, w, exact)
        softplus_sum = sums.loss.double()
    block = block.double()
    loss = label_free_loss(block, b, w, softplus_sum)
    return with_exact_losses(loss, rows, columns, b, w, exact | cancels(block, b, w).any(1))


def intercept_only_loss(prior: Tensor, rows: PreparedRows) -> Tensor:
    """Mean negative log-likelihood on some rows of a model with the training prior alone, [C]."""
    share = class_totals(rows.labels, rows.grid) / rows.x.rows
    return torch.nn.functional.softplus(prior) - share * prior


def explained(loss: np.ndarray, loss_held_out: np.ndarray, intercept_only: np.ndarray) -> np.ndarray:
    """R = 1 - loss / intercept-only loss, held out, of each class's latent of lowest training loss.

    From loss matrices [L, C] and the intercept-only loss [C]. A class that never occurs in the held-out rows
    has an intercept-only loss near zero and explains nothing.
    """
    chosen = loss_held_out[loss.argmin(axis=0), np.arange(loss.shape[1])]
    return np.where(intercept_only > 1e-6, 1 - chosen / np.maximum(intercept_only, 1e-6), 0.0)


Phase = Callable[[str], AbstractContextManager[Any]]
CountConfusion = Callable[[Tensor, Tensor, Tensor, Tensor], Confusion]
"""Counts of the classes at `columns` from their positive rows [c] and from b, w float64 [L, c]."""


class Paths(Protocol):
    """The paths of an arm: the naive path, and what its levels replace."""

    phase: Phase
    hook: NoHook

    @property
    def slab_size(self) -> int | str:
        """Classes solved together, or "all"."""
        ...

    def prepare(self, data: ProbeData, grid: Tensor) -> Prepared:
        """Make everything that is made once per job."""
        ...

    def solver(self, prepared: Prepared, solution: Solution) -> Callable[[int, Tensor], Iterator[None]]:
        """The passes over the slab of a number, whose classes are at given columns of the grid."""
        ...

    def certifier(self, prepared: Prepared, solution: Solution) -> Certifier | None:
        """What has the last word on every pair, None where the solver has it."""
        ...

    def confusion(self, train: PreparedRows) -> CountConfusion:
        """What counts true and false positives of a slab."""
        ...


@dataclass(frozen=True)
class Task:
    """What a job is given."""

    data: ProbeData
    grid: Tensor
    config: Probe1DConfig
    paths: Paths


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
        task = self.task
        task.paths.hook.job_begins()
        prepared = self.prepared = self.given or task.paths.prepare(task.data, task.grid)
        solve = task.paths.solver(prepared, self.solution)
        certifier = task.paths.certifier(prepared, self.solution)
        for number, columns in enumerate(self._slabs()):
            prepared.train.evaluator.begin(columns)
            yield from solve(number, columns)
            if certifier is not None:
                with task.paths.phase("certify"):
                    certifier.certify(columns)
            self.solved_pairs += task.data.x.latents * columns.numel()
        self.results = self.solution.by_latent(prepared.train.order)
        if task.config.metrics:
            yield from self._describe(prepared)
        task.paths.hook.job_ends()

    def by_name(self) -> dict[str, np.ndarray]:
        """Result matrices [L, C] of the finished job, by their names in a file of probes."""
        names = {"b": "intercept", "w": "coef"}
        return {names.get(name, name): value.cpu().numpy() for name, value in self.results.items()}

    def _slabs(self) -> Iterator[Tensor]:
        device = self.task.grid.device
        return (columns.to(device) for columns in slabs(self.task.grid.numel(), self.task.paths.slab_size))

    def _describe(self, prepared: Prepared) -> Iterator[None]:
        """Loss matrices and confusion counts, slab by slab; parameters as they are written to a file."""
        losses = "loss" in self.results
        describe = _Describer(self.task, prepared, self.results["b"], self.results["w"], losses)
        for columns in self._slabs():
            yield
            describe.slab(columns)
        self.results |= describe.results


class _Describer:
    """Fills the result matrices [L, C] that are not parameters; `losses`: those of training are there."""

    def __init__(self, task: Task, prepared: Prepared, b: Tensor, w: Tensor, losses: bool) -> None:
        self.task, self.prepared, self.b, self.w = task, prepared, b, w  # float64: see `ill_conditioned`
        rows = {"loss": None if losses else prepared.train, "loss_val": prepared.held_out}
        self.rows = {name: part for name, part in rows.items() if part is not None}
        self.results = {name: torch.zeros_like(b, dtype=torch.float32) for name in self.rows}
        self.results |= {name: torch.zeros_like(b, dtype=torch.int64) for name in ("tp", "fp", "tn", "fn")}
        self.count_confusion = task.paths.confusion(prepared.train)

    def slab(self, columns: Tensor) -> None:
        """Losses and counts of the classes at `columns`."""
        with self.task.paths.phase("loss"):
            for name, rows in self.rows.items():
                self._loss(name, rows, columns)
        with self.task.paths.phase("confusion"):
            positives = self.prepared.train.constants.positives[columns].long()
            counted = self.count_confusion(columns, positives, self.b[:, columns], self.w[:, columns])
        for name in ("tp", "fp", "tn", "fn"):
            self.results[name][:, columns] = getattr(counted, name)

    def _loss(self, name: str, rows: PreparedRows, columns: Tensor) -> None:
        b, w = self.b[:, columns], self.w[:, columns]
        if rows.order is None:
            self.results[name][:, columns] = mean_loss(rows, columns, b, w).float()
            return
        by_rank = mean_loss(rows, columns, b[rows.order], w[rows.order]).float()
        self.results[name][:, columns] = torch.empty_like(by_rank).index_copy_(0, rows.order, by_rank)
