"""What a fit is worth: mean loss of every pair, and per class the best latent and how much it explains."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from perfsweep.workloads.probe1d.data.problem import class_totals
from perfsweep.workloads.probe1d.maths.derivatives import combine
from perfsweep.workloads.probe1d.maths.ill_conditioned import ill_conditioned, with_exact_losses
from perfsweep.workloads.probe1d.maths.prepared_rows import PreparedRows

CANCELS = 2.0
"""Mean of y eta above which a loss is summed again in float64: float32 rounds by some 1e-7 of it."""


def mean_loss(rows: PreparedRows, columns: Tensor, b: Tensor, w: Tensor) -> Tensor:
    """Mean negative log-likelihood without penalty, [L, c] in the order of latents of `rows`."""
    rows.evaluator.begin(columns)
    block = rows.block(columns, rows.evaluator.precision.sums).unpenalised()
    near_b, near_w = b.to(block.prior.dtype), w.to(block.prior.dtype)
    sums = rows.evaluator.sums(block, near_b, near_w)
    found = combine(block, near_b, near_w, sums, 1.0 / block.rows, clip=1e-8)
    assert found.loss is not None
    exact = ill_conditioned(rows.constants)
    if sums.labels is not None:
        return with_exact_losses(found.loss, rows, columns, b, w, exact)
    share = block.positives / block.rows
    # Without labels a loss is a difference of two sums, which float32 rounds by their own size.
    size = near_b.abs() * share + (near_w * block.hit_sum).abs() / block.rows
    exact |= ((size > CANCELS) & (w != 0)).any(1)
    constant = torch.nn.functional.softplus(b) - share.double() * b
    loss = torch.where(w == 0, constant.to(size.dtype), found.loss)
    return with_exact_losses(loss, rows, columns, b, w, exact)


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
