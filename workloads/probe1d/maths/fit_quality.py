"""What a fit is worth: mean loss of every pair, and per class the best latent and how much it explains."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from perfsweep.workloads.probe1d.data.problem import class_totals
from perfsweep.workloads.probe1d.maths.derivatives import cancels, combine, label_free_loss
from perfsweep.workloads.probe1d.maths.ill_conditioned import ill_conditioned, with_exact_losses
from perfsweep.workloads.probe1d.maths.prepared_rows import PreparedRows
from perfsweep.workloads.probe1d.maths.sums_by_latent import CscEvaluator


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


@dataclass(frozen=True)
class ClassSummary:
    """Per class: latent of lowest training loss, its held-out loss, R = 1 - loss / intercept-only loss."""

    best_latent: np.ndarray
    loss: np.ndarray
    explained: np.ndarray


def summarise(loss: np.ndarray, loss_held_out: np.ndarray, intercept_only: np.ndarray) -> ClassSummary:
    """Summaries from loss matrices [L, C] and the intercept-only loss [C] on the held-out rows.

    A class that never occurs in the held-out rows has an intercept-only loss near zero and explains nothing.
    """
    best = loss.argmin(axis=0)
    chosen = loss_held_out[best, np.arange(loss.shape[1])]
    explained = np.where(intercept_only > 1e-6, 1 - chosen / np.maximum(intercept_only, 1e-6), 0.0)
    return ClassSummary(best, chosen, explained)
