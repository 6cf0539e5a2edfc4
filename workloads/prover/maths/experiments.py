"""What a claim asks about that a job does not show by itself: candidates of two steps against candidates of
any length."""

from __future__ import annotations

import time

import torch
from torch import Tensor

from workloads.prover.data.corruption import Corruptor
from workloads.prover.maths.job import Job
from workloads.prover.maths.rows import Rows

MOST_ROWS = 64


@torch.no_grad()
def varied_over_short(job: Job) -> float:
    """Time until a slab of different candidates is done, over that of as many copies of the shortest of them.

    The report's best figure came from one query of two steps, repeated, and its plan for real queries from
    that figure.
    """
    task = job.task
    outcome = job.results[task.config.mode_names[0]].outcome
    corruptor = Corruptor(
        task.kb, task.config.mode_names[0], task.config.corruptions, task.config.corruption_seed
    )
    candidates = corruptor.together(task.queries).atoms
    rows = min(MOST_ROWS, len(candidates), task.slab or MOST_ROWS)
    shortest = int(outcome["depth"].argmin())
    varied = candidates[torch.linspace(0, len(candidates) - 1, rows, device=candidates.device).long()]
    return _until_done(job, varied) / _until_done(job, candidates[shortest].expand(rows, -1))


def _until_done(job: Job, atoms: Tensor) -> float:
    """Seconds from the first step to the one after which every row is done."""
    machinery = job.task.machinery
    machinery.begin_job()
    rows: Rows = machinery.factory.start(atoms, torch.full((len(atoms),), -1, device=atoms.device))
    job.task.step(rows)  # what a first step of this size compiles or allocates
    start = _now(atoms)
    while not bool(rows.done.all()):
        rows, _ = job.task.step(rows)
    return _now(atoms) - start


def _now(like: Tensor) -> float:
    if like.is_cuda:
        torch.cuda.synchronize()
        return time.perf_counter()
    return time.process_time()
