"""One damped Newton (Levenberg-Marquardt) step for a block of pairs, as the report's solver takes it.

All pairs go through the retries in lock step. A pair succeeds when its step is solvable and the undamped
model predicts a decrease; zero gradients predict none, so dead pairs use up every try on every pass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from perfsweep.workloads.probe1d.counters import Counts
from perfsweep.workloads.probe1d.data.problem import SCALE_FLOOR, Csr
from perfsweep.workloads.probe1d.maths.derivatives import Derivatives

LAMBDA_START = 1e-3
LAMBDA_LOW, LAMBDA_HIGH = 1e-12, 1e12
TINY_DETERMINANT = 1e-18
NOISE_OF_PREDICTION = 1e-8
"""Predicted decreases of the mean loss below this are lost in float32 rounding of the loss itself."""


@dataclass(frozen=True)
class DampingRules:
    """Constants in which the report-time form and the later form differ."""

    name: str
    sums: bool  # work on sums instead of means
    tol: float
    max_iter: int
    clip: float
    tries: int
    budget: float  # longest step, in logits
    rms_metric: bool  # metric is scale^2 instead of the clipped curvature ratio
    pin_dead: bool
    skip_small: bool  # leave out pairs whose unscaled gradient is small


NAIVE = DampingRules(
    "naive", True, 1e-4, 100, 1e-7, 6, 8.0, rms_metric=False, pin_dead=False, skip_small=False
)
LATE = DampingRules("late", False, 1e-6, 30, 1e-8, 5, 6.0, rms_metric=True, pin_dead=True, skip_small=True)


@dataclass
class DampingState:
    """Parameters and damping of a block, all [R, c] in the type of the sums."""

    b: Tensor
    w: Tensor
    lam: Tensor
    predicted: Tensor
    loss: Tensor
    clipped: Tensor
    failures: Tensor

    @classmethod
    def start(cls, b: Tensor, w: Tensor) -> DampingState:
        """The state before the first pass: no prediction to compare a loss with."""
        return cls(
            b=b,
            w=w,
            lam=torch.full_like(b, LAMBDA_START),
            predicted=torch.full_like(b, torch.nan),
            loss=torch.zeros_like(b),
            clipped=torch.zeros_like(b, dtype=torch.bool),
            failures=torch.zeros_like(b, dtype=torch.int32),
        )

    def select(self, keep: Tensor) -> DampingState:
        """The rows named by the int64 index `keep`."""
        return DampingState(
            *(getattr(self, name).index_select(0, keep) for name in self.__dataclass_fields__)
        )


@dataclass(frozen=True)
class Step:
    """A step of every pair, zero where it failed; `failed` marks pairs that used up their tries."""

    db: Tensor
    dw: Tensor
    predicted: Tensor
    lam: Tensor
    clipped: Tensor
    failed: Tensor


def step_metric(rules: DampingRules, grad: Derivatives, scale: Tensor) -> Tensor:
    """Weight of w against b in damping and in the step budget, [R, c]."""
    if rules.rms_metric:
        return (scale * scale).expand_as(grad.h0)
    ratio = grad.h2 / grad.h0.clamp(min=1e-12)
    low = (0.05 * scale * scale).clamp(min=1e-6)
    # minimum last: where scale is so small that the floor exceeds the ceiling, the ceiling holds.
    return torch.minimum(torch.maximum(ratio, low), scale * scale)


def adapt_damping(state: DampingState, loss: Tensor, ignore_noise: bool) -> Tensor:
    """Raise or lower lambda by the gain ratio of the *previous* step; returns the new lambda.

    `ignore_noise` leaves out ratios whose prediction is below float32 rounding and relaxes the damping there
    instead.
    """
    # Before the first step there is no prediction to hold a loss against.
    known = torch.isfinite(state.predicted)
    ratio = (state.loss - loss) / state.predicted.clamp(min=1e-18)
    # Bounds of Fletcher (1971). A clipped step says the model reaches too far, however good its ratio.
    down = (ratio >= 0.75) & ~state.clipped
    up = (ratio <= 0.25) | state.clipped
    if ignore_noise:
        noise = (state.predicted > 0) & (state.predicted <= NOISE_OF_PREDICTION)
        down = torch.where(noise, ~state.clipped, down)
        up = torch.where(noise, torch.zeros_like(up), up)
    lam = torch.where(known & down, state.lam / 10, state.lam)
    lam = torch.where(known & up, lam * 10, lam)
    return lam.clamp(LAMBDA_LOW, LAMBDA_HIGH)


def attempt(
    grad: Derivatives, lam: Tensor, metric: Tensor, budget: float
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Solve one damped system by Cramer's rule: step, predicted decrease, clipped, succeeded."""
    # The metric gives lambda one unit, logits, for b and for w, whatever the unit of x.
    d00, d11 = grad.h0 + lam, grad.h2 + lam * metric
    det = d00 * d11 - grad.h1 * grad.h1
    db = (d11 * grad.g0 - grad.h1 * grad.g1) / det
    dw = (d00 * grad.g1 - grad.h1 * grad.g0) / det
    length = torch.sqrt(db * db + metric * dw * dw)
    clipped = length > budget
    shrink = torch.where(clipped, budget / length, torch.ones_like(length))
    db, dw = db * shrink, dw * shrink
    curvature = grad.h0 * db * db + 2 * grad.h1 * db * dw + grad.h2 * dw * dw
    # Of the undamped model: lambda shapes the step, and the loss knows nothing of it.
    predicted = grad.g0 * db + grad.g1 * dw - curvature / 2
    good = (det.abs() > TINY_DETERMINANT) & torch.isfinite(predicted) & (predicted > 0)
    return db, dw, predicted, clipped, good


class Retries:
    """The retry loop; `any_left` reads whether any pair is left, which on a GPU makes the host wait."""

    def __init__(self, rules: DampingRules, any_left: Callable[[Tensor], bool]) -> None:
        self.rules, self.any_left = rules, any_left

    def __call__(self, grad: Derivatives, lam: Tensor, metric: Tensor, wanted: Tensor) -> tuple[Step, int]:
        """Steps of the `wanted` pairs and the number of tries made."""
        zero = torch.zeros_like(lam)
        db, dw, predicted = zero, zero, zero
        clipped = torch.zeros_like(wanted)
        left, tries = wanted, 0
        while tries < self.rules.tries and self.any_left(left):
            tries += 1
            new = attempt(grad, lam, metric, self.rules.budget)
            won = left & new[4]
            db, dw, predicted = (
                torch.where(won, a, old) for a, old in zip(new[:3], (db, dw, predicted), strict=True)
            )
            clipped = torch.where(won, new[3], clipped)
            left = left & ~won
            lam = torch.where(left, lam * 10, lam)
        return Step(db, dw, predicted, lam.clamp(LAMBDA_LOW, LAMBDA_HIGH), clipped, left), tries


PIECE = 1_000_000


def rms_by_pass(x: Csr, counts: Counts) -> tuple[Tensor, Tensor]:
    """Number and sum of squares of each latent's non-zeros, by a pass in pieces: float32 [L] each."""
    number = torch.zeros(x.latents, dtype=torch.float32, device=x.values.device)
    squares = torch.zeros_like(number)
    for columns, values in zip(x.indices.split(PIECE), x.values.float().split(PIECE), strict=True):
        number.index_add_(0, columns, torch.ones_like(values))
        squares.index_add_(0, columns, values * values)
    counts.add("qx_passes")
    return number, squares


def metric_scale(x: Csr, level: str, count: Tensor, rms: Tensor, counts: Counts) -> Tensor:
    """The scale of a level of `qx_stat`, float64 [L]; 1 for a dead latent, never below SCALE_FLOOR.

    `rms`, the root mean square [L], is there already; the others are passes of their own.
    """
    if level in ("rms", "rms_free"):
        return rms
    counts.add("qx_passes")
    size = x.values.double().abs()
    if level == "meanabs":
        found = torch.bincount(x.indices, weights=size, minlength=x.latents) / count.clamp(min=1)
    elif level == "max":
        found = torch.zeros_like(rms).scatter_reduce(0, x.indices, size, "amax")
    else:
        found = _quantile(x, size, count, 0.95)
    found = torch.where(count > 0, found.clamp(min=SCALE_FLOOR), 1.0)
    counts.add("metric_changed", counts.read(((found - rms).abs() > 1e-6 * rms).sum()))
    return found


def _quantile(x: Csr, size: Tensor, count: Tensor, share: float) -> Tensor:
    """The value below which `share` of a latent's non-zeros lie, float64 [L]."""
    order = torch.argsort(size)
    order = order[torch.argsort(x.indices[order], stable=True)]
    first = count.long().cumsum(0) - count.long()
    position = first + ((count - 1).clamp(min=0) * share).round().long()
    return size[order][position.clamp(max=max(x.nnz - 1, 0))] if x.nnz else torch.zeros_like(count)
