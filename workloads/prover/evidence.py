"""What a finished job is judged by: outcomes, ranks and metrics, and figures that claims ask for."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from perfsweep.workloads.api import Evidence
from perfsweep.workloads.prover.job import Job, ModeResult
from perfsweep.workloads.prover.maths.episodes import Ranked, digest, metrics, ranked
from perfsweep.workloads.prover.maths.slab_size import processor_seconds
from perfsweep.workloads.prover.ranking import averaged, metrics_of
from perfsweep.workloads.prover.training import resolver_of

REPORTED_STEPS = {"done_after_step_1": 1, "done_after_step_11": 11, "done_after_step_19": 19}
"""Steps of a slab after which the report says how many rows are done."""
FLAT_ROWS = 3
"""Iterations with distinct activity that a slope needs."""
MOST_ROWS = 64
"""Rows of the slab on which different candidates are compared with copies of one."""


def numbers(job: Job) -> dict[str, float]:
    """MRR and Hits@k; share of proofs and mean depth over candidates that no rounding can turn.

    Nothing before the end.
    """
    if not job.results:
        return {}
    outcome = _joined([result.outcome for result in job.results.values()])
    sure = ~outcome["ambiguous"]
    means = {name: outcome[name][sure].mean() if sure.any() else 0.0 for name in ("success", "depth")}
    return metrics_of(job) | {f"{name}_unambiguous": float(mean) for name, mean in means.items()}


def collect(job: Job) -> Evidence:
    """Figures of the job, tensors by candidate and query, and the oracle's provable queries."""
    modes = job.results
    found = {mode: ranked(result.outcome, result.sizes) for mode, result in modes.items()}
    per_mode = {mode: metrics(ranks.rank) for mode, ranks in found.items()}
    numbers = {f"{name}_{mode}": value for mode, values in per_mode.items() for name, value in values.items()}
    numbers |= averaged(list(per_mode.values()))
    outcome = _joined([result.outcome for result in modes.values()])
    numbers |= _rates(modes) | _own_errors(job, outcome)
    if not math.isnan(slope := step_slope(job.step_rows)):
        numbers["step_ms_slope"] = slope
    numbers |= time_of_steps(job.step_rows, job.task.slab)
    numbers |= {"queries": float(len(job.task.queries)), "modes": float(len(modes))}
    numbers["ms_per_candidate"] = 1e3 * numbers["evaluation_s"] / numbers["candidates"]
    if not math.isnan(over_short := varied_over_short(job)):
        numbers["varied_over_short"] = over_short
    provable = provable_queries(job)
    for mode, ranks in found.items() if provable.any() else ():
        numbers[f"mrr_provable_{mode}"] = metrics(ranks.rank[provable])["mrr"]
    numbers["provable"] = float(provable.mean())
    return Evidence(_tensors(outcome, found), numbers)


def _tensors(outcome: Mapping[str, np.ndarray], found: Mapping[str, Ranked]) -> dict[str, np.ndarray]:
    """What parity compares, by candidate and by query; metrics are means of ranks."""
    return {
        **{name: outcome[name] for name in ("success", "depth", "actions", "ambiguous")},
        "log_prob": outcome["log_prob"].astype(np.float64) / (1 + outcome["depth"]),
        "rank": np.concatenate([ranks.rank for ranks in found.values()]),
        "ambiguous_query": np.concatenate([ranks.ambiguous for ranks in found.values()]),
        "depth_histogram": np.bincount(outcome["depth"]),
    }


def _joined(outcomes: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return {name: np.concatenate([outcome[name] for outcome in outcomes]) for name in outcomes[0]}


def _rates(modes: Mapping[str, ModeResult]) -> dict[str, float]:
    positive, negative, depths = [], [], []
    for result in modes.values():
        first = np.zeros(len(result.outcome["success"]), dtype=bool)
        first[np.cumsum(result.sizes) - result.sizes] = True
        positive.append(result.outcome["success"][first])
        negative.append(result.outcome["success"][~first])
        depths.append(result.outcome["depth"])
    rates = {"success_positive": positive, "success_negative": negative, "depth_mean": depths}
    return {
        name: float(np.mean(np.concatenate(parts))) if sum(map(len, parts)) else 0.0
        for name, parts in rates.items()
    }


def _own_errors(job: Job, outcome: Mapping[str, np.ndarray]) -> dict[str, float]:
    return {
        "candidates": float(len(outcome["depth"])),
        "ambiguous_share": float(outcome["ambiguous"].mean()),
        "screening_error": job.task.arm.screening_error(),
        # A number of 48 bits is exact in a float64.
        "outcome_hash": float(int(digest([outcome["success"], outcome["depth"]])[:12], 16)),
    }


def time_of_steps(rows: Sequence[Mapping[str, float]], slab: int | None) -> dict[str, float]:
    """Seconds of all steps; of the first slab, where it is full, its rows done after the reported steps."""
    numbers = {"evaluation_s": sum(row["step_ms"] for row in rows) / 1e3}
    first = list(itertools.takewhile(lambda row: not row["slabs"], rows[1:]))
    if not rows or rows[0]["row_steps"] != slab or rows[0]["padded_rows"] or "refilled" in rows[0]:
        return numbers
    done = np.cumsum([row["done"] for row in (rows[0], *first)])
    reported = {name: float(done[step]) for name, step in REPORTED_STEPS.items() if step < len(done)}
    if first:
        numbers["first_step_over_second"] = rows[0]["step_ms"] / first[0]["step_ms"]
    return numbers | reported


def step_slope(rows: Sequence[Mapping[str, float]]) -> float:
    """Share of a full slab's step time saved once all its rows are done; NaN where nothing varies.

    Least squares of step time on the active share, over full slabs only. 0: a step costs the same whatever is
    done.
    """
    full = max((row["row_steps"] for row in rows), default=0)
    points = [(row["active"] / full, row["step_ms"]) for row in rows if full and row["row_steps"] == full]
    share, time = np.array(points).reshape(-1, 2).T
    if len(set(share.tolist())) < FLAT_ROWS:
        return math.nan
    slope, empty = np.polyfit(share, time, 1)
    return float(slope / (slope + empty))


def provable_queries(job: Job) -> np.ndarray:
    """Whether the oracle finds a proof of each query within the configured number of actions [Q]."""
    task = job.task
    resolver = resolver_of(task.kb)
    limit = task.config.provable_limit
    queries = [tuple(query) for query in task.queries.tolist()]
    return np.array([resolver.shortest(query, limit) is not None for query in queries])


@torch.no_grad()
def varied_over_short(job: Job) -> float:
    """Time until a slab of different candidates is done, over that of as many copies of the shortest of them.

    The report's best figure came from one query of two steps, repeated, and its plan for real queries from
    that figure. Not a number where the clock does not tell: a limit on processor time (``ulimit -t``) makes
    the kernel count it in ticks.
    """
    task = job.task
    outcome = job.results[task.config.mode_names[0]].outcome
    candidates = task.corruptor(task.config.mode_names[0]).together(task.queries).atoms
    rows = min(MOST_ROWS, len(candidates), task.slab or MOST_ROWS)
    shortest = int(outcome["depth"].argmin())
    varied = candidates[torch.linspace(0, len(candidates) - 1, rows, device=candidates.device).long()]
    spent, short = _until_done(job, varied), _until_done(job, candidates[shortest].expand(rows, -1))
    return spent / short if short else math.nan


def _until_done(job: Job, atoms: Tensor) -> float:
    """Seconds from the first step to the one after which every row is done."""
    arm = job.task.arm
    arm.begin_job()
    rows = arm.start(atoms, torch.full((len(atoms),), -1, device=atoms.device))
    arm.step(rows)  # what a first step of this size compiles or allocates
    start = processor_seconds(atoms)
    while not bool(rows.done.all()):
        rows, _ = arm.step(rows)
    return processor_seconds(atoms) - start
