"""What a finished job is judged by: passes at a fixed point, parameters against the float64 minimiser."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from perfsweep.workloads.api import Evidence
from perfsweep.workloads.probe1d import oracle
from perfsweep.workloads.probe1d.maths.blocks import Block, Reason
from perfsweep.workloads.probe1d.maths.derivatives import combine
from perfsweep.workloads.probe1d.maths.job import Job, Task
from perfsweep.workloads.probe1d.maths.prepared_rows import PreparedRows

PROBE_CLASSES = 8
ORACLE_EVENTS = 10**9
"""Event-classes the numpy oracle visits at most: beyond, it judges an evenly spread sample of the latents."""


def full(
    task: Task, job: Job, results: dict[str, np.ndarray], objective: oracle.Objective, minimum_file: Path
) -> Evidence:
    """Parameters, probes, and everything the oracle has to say."""
    assert job.prepared is not None
    gradient, hessian = probe(job.prepared.train, task.grid)
    found = against_oracle(task, results, objective, minimum_file)
    tensors = {
        "probe_gradient": gradient,
        "probe_hessian": hessian,
        "coef": results["coef"],
        "intercept": results["intercept"],
        "reason": results["reason"],
        "gmax": results["gmax"],
        **found.tensors,
    }
    return Evidence(tensors, found.numbers)


def probe(rows: PreparedRows, grid: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Mean gradient [L, c, 2] and Hessian [L, c, 3] of the first classes, by the arm's pass at a fixed point.

    Latents are in their original order. At one point, all solvers' passes must agree whatever they are used
    for.
    """
    classes = min(PROBE_CLASSES, grid.numel())
    columns = torch.arange(classes, device=grid.device)
    block = rows.block(columns, rows.evaluator.precision.sums)
    b, w = _probe_point(block, rows.order)
    rows.evaluator.begin(columns)
    found = combine(block, b, w, rows.evaluator.sums(block, b, w), 1.0 / block.rows, clip=1e-8)
    # In units of each latent's scale: otherwise one with large values would drown all others in the norm.
    scale = block.scale
    gradient = torch.stack([found.g0, found.g1 / scale], -1)
    hessian = torch.stack([found.h0, found.h1 / scale, found.h2 / scale**2], -1)
    return _original_order(gradient, rows.order), _original_order(hessian, rows.order)


def _probe_point(block: Block, order: Tensor | None) -> tuple[Tensor, Tensor]:
    """b between -3 and 1, w scale between -2 and 2, spread over the pairs by their original numbers."""
    latents, classes = block.pair.shape
    number = torch.arange(latents * classes, device=block.pair.device, dtype=torch.float64).view(
        latents, classes
    )
    if order is not None:
        number = number[order]
    b = -1 + 2 * torch.sin(number)
    w = 2 * torch.cos(1.7 * number) / block.scale
    return b.to(block.scale.dtype), w.to(block.scale.dtype)


def _original_order(matrix: Tensor, order: Tensor | None) -> np.ndarray:
    if order is not None:
        matrix = torch.empty_like(matrix).index_copy_(0, order, matrix)
    return matrix.double().cpu().numpy()


def against_oracle(
    task: Task, results: dict[str, np.ndarray], objective: oracle.Objective, minimum_file: Path
) -> Evidence:
    """Loss, gradient, exact counts and excess of the parameters: over the objective, over the loss alone."""
    latents = _judged_latents(task)
    events = _events(task, latents)
    b = results["intercept"][latents]
    w = results["coef"][latents]
    verdict = oracle.judge(events, b, w, objective)
    least = _minimum(events, objective, minimum_file)
    excess, loss_excess = verdict.objective - least["objective"], verdict.loss - least["loss"]
    above = verdict.gradient > task.config.tol * 1.01
    numbers = {
        "max_gradient": float(verdict.gradient.max()),
        "pairs_above_tol": float(above.sum()),
        "share_above_tol": float(above.mean()),
        "max_excess": float(excess.max()),
        "mean_excess": float(excess.mean()),
        "max_unpenalised_excess": float(loss_excess.max()),
        "mean_unpenalised_excess": float(loss_excess.mean()),
        "judged_latents": float(latents.size),
        "loss_mean": float(verdict.loss.mean()),
        "unsolved_pairs": float((results["reason"] == Reason.BUDGET).sum()),
        **_confusion_mistakes(results, latents, verdict),
    }
    return Evidence({"excess": excess}, numbers)


def _confusion_mistakes(
    results: dict[str, np.ndarray], latents: np.ndarray, verdict: oracle.Verdict
) -> dict[str, float]:
    if "tp" not in results:
        return {"confusion_mismatches": 0.0}
    wrong = (results["tp"][latents] != verdict.tp) | (results["fp"][latents] != verdict.fp)
    return {
        "confusion_mismatches": float((wrong & ~verdict.near).sum()),
        "confusion_excused": float((wrong & verdict.near).sum()),
    }


def _judged_latents(task: Task) -> np.ndarray:
    x = task.data.x
    wanted = max(1, int(ORACLE_EVENTS / (max(x.nnz, 1) * task.grid.numel()) * x.latents))
    return (
        np.arange(x.latents)
        if wanted >= x.latents
        else np.linspace(0, x.latents - 1, wanted).astype(np.int64)
    )


def _events(task: Task, latents: np.ndarray) -> oracle.Events:
    x, labels = task.data.x, task.data.labels
    dense = labels.dense(task.grid, torch.bool).cpu().numpy()
    number = torch.full((x.latents,), -1, dtype=torch.int64, device=x.indices.device)
    number[torch.from_numpy(latents).to(number.device)] = torch.arange(latents.size, device=number.device)
    wanted = number[x.indices] >= 0
    rows = x.row_index()[wanted]
    starts = torch.cat([rows.new_zeros(1), torch.bincount(rows, minlength=x.rows).cumsum(0)])
    columns, values = number[x.indices[wanted]].cpu().numpy(), x.values[wanted].double().cpu().numpy()
    return oracle.Events.of(starts.cpu().numpy(), columns, values, latents.size, dense)


def _minimum(events: oracle.Events, objective: oracle.Objective, file: Path) -> dict[str, np.ndarray]:
    """Least objective and least loss, [L, C] each, computed once per problem."""
    if not file.exists():
        least = {"objective": objective, "loss": oracle.LOSS}
        least = {name: oracle.minimise(events, of)[2] for name, of in least.items()}
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_name(f"{file.stem}.{np.random.default_rng().integers(2**60):x}.part.npz")
        np.savez(part, **least)  # pyright: ignore[reportArgumentType]
        part.replace(file)
    with np.load(file) as stored:
        return dict(stored)
