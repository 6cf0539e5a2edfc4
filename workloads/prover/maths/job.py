"""One job: every candidate of every mode proved, from the first draw of corruptions to the last outcome."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from perfsweep.workloads.api import Context
from perfsweep.workloads.prover.config import ProverConfig
from perfsweep.workloads.prover.counters import Counts, Tally
from perfsweep.workloads.prover.data.corruption import Corruptor, Source, no_corruption
from perfsweep.workloads.prover.data.knowledge import KnowledgeBase
from perfsweep.workloads.prover.maths.episodes import RowFactory, Rows
from perfsweep.workloads.prover.maths.policy import Policy
from perfsweep.workloads.prover.maths.results import Results
from perfsweep.workloads.prover.maths.schedule import Slab, StepFunction
from perfsweep.workloads.prover.maths.scoring import Scorer, Screen
from perfsweep.workloads.prover.maths.slab_size import SlabMemory
from perfsweep.workloads.prover.maths.state_values import EveryState
from perfsweep.workloads.prover.maths.step import Step


@dataclass(frozen=True)
class Machinery:
    """One arm, ready to run: what `build` makes of its levels.

    Attributes
    ----------
    values : evaluates states in float32 (or the arm's type); `screen` is there where 16 bits come first
    corruptions, pad : levels of the toggles `corruptions` and `pad_to_slab`
    fixed : whether a slab keeps its size to the end, as compiled steps need
    schedule : runs the steps of a slab
    """

    policy: Policy
    values: EveryState
    scorer: Scorer
    factory: RowFactory
    step: Step
    screen: Screen | None
    memory: SlabMemory
    corruptions: str
    pad: str
    fixed: bool
    schedule: Callable[[Slab, StepFunction], Iterator[None]]

    def begin_job(self) -> None:
        """Forget what the last job kept."""
        self.values.forget()
        self.scorer.begin()


@dataclass
class Task:
    """What a job is given.

    Attributes
    ----------
    queries : [Q, 1+r]
    slab : rows of a slab, None for all candidates at once
    budget : bytes that a slab may need
    step : the machinery's step, compiled or not
    traces : whether actions are kept
    """

    kb: KnowledgeBase
    config: ProverConfig
    machinery: Machinery
    queries: Tensor
    slab: int | None
    budget: int
    step: StepFunction
    counts: Counts
    context: Context
    traces: bool = False

    @property
    def device(self) -> torch.device:
        """Where everything lies."""
        return self.kb.facts.device


@dataclass
class ModeResult:
    """Outcomes of one mode: arrays by name [N], and candidates by query [Q]."""

    outcome: dict[str, np.ndarray]
    sizes: np.ndarray


@dataclass
class Job:
    """Runs the modes one after the other; `passes` yields after every iteration."""

    task: Task
    results: dict[str, ModeResult] = field(default_factory=dict)
    finished: int = 0
    running: Results | None = None
    step_rows: list[dict[str, float]] = field(default_factory=list)

    @property
    def scored(self) -> int:
        """Candidates with an outcome."""
        return self.finished + (self.running.finished if self.running else 0)

    def passes(self) -> Iterator[None]:
        """The whole job. Stops once before any work."""
        yield
        self.task.machinery.begin_job()
        for mode in self.task.config.mode_names:
            yield from self._mode(mode)
        self._settle()

    def _mode(self, mode: str) -> Iterator[None]:
        task = self.task
        corruptor = Corruptor(task.kb, mode, task.config.corruptions, task.config.corruption_seed)
        source = Source(corruptor, task.queries, task.machinery.corruptions)
        self.running = Results(task.device, traces=task.traces)
        yield from task.machinery.schedule(self._slab(source, self.running), self._timed)
        task.counts.add("corruption_batches", corruptor.batches)
        sizes = source.owners.cpu().numpy()
        self.finished += self.running.finished
        self.results[mode] = ModeResult(self.running.arrays(), sizes)
        self.running = None
        if self.finished and int(sizes.max()) < 2:
            raise no_corruption(mode)

    def _slab(self, source: Source, results: Results) -> Slab:
        task, machinery = self.task, self.task.machinery
        return Slab(
            factory=machinery.factory,
            source=source,
            results=results,
            log=task.counts.iteration,
            check=lambda rows: machinery.memory.check(rows, task.budget),
            size=task.slab,
            pad=machinery.pad,
            fixed=machinery.fixed,
        )

    def _timed(self, rows: Rows) -> tuple[Rows, Tally]:
        active = (~rows.done).sum()
        start = time.perf_counter()
        rows, tally = self.task.step(rows)
        tally["step_ms"] = 1e3 * (time.perf_counter() - start)
        tally["active"] = active
        return rows, tally

    def _settle(self) -> None:
        """Log one row per iteration; waiting for the device is left to the end of the job."""
        task = self.task
        left = sum(len(found.outcome["depth"]) for found in self.results.values())
        self.step_rows = task.counts.settle()
        for row in self.step_rows:
            left -= int(row["done"])
            task.context.log(_log_row(row, left))
        task.counts.add("jobs")


LOGGED = (
    *(
        "step_ms",
        "active",
        "refilled",
        "done",
        "row_steps",
        "useful_row_steps",
        "states_real",
        "states_padded",
    ),
    *("fact_pairs", "rule_pairs", "bytes_packed", "deferred", "overflow"),
)


def _log_row(row: Mapping[str, float], left: int) -> dict[str, float]:
    """One iteration as logged. Padding done with its slab is no candidate: `queue_left` ends <= 0."""
    logged = {name: row.get(name, 0.0) for name in LOGGED}
    rate = 1e3 * row["done"] / row["step_ms"] if row["step_ms"] > 0 else 0.0
    return {**logged, "queue_left": float(max(left, 0)), "cand_per_s": rate}
