"""Terms of the objective that run no pass of the target: faithfulness and minimality."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from perfsweep.workloads.spd.presets import Recipe

TINY = 1e-12


def faithfulness(deltas: Mapping[str, Tensor]) -> Tensor:
    """sum ||D||^2 / sum of all entries [], in the deltas' own precision.

    The Gram form ||W||^2 - 2 <W, VU> + ||VU||^2 would need no D, but cancels near 1e-5 of the weights' size.
    """
    squares = [delta.square().sum() for delta in deltas.values()]
    return torch.stack(squares).sum() / sum(delta.numel() for delta in deltas.values())


def minimality(upper: Tensor, p: float | Tensor, beta: float, stacked: bool) -> Tensor:
    """sum over modules and subcomponents of mean * (1 + beta * log2(1 + S)); S sums u^p over positions [].

    Parameters
    ----------
    upper : u [..., C] of one module, or [K, ..., C]
    p : exponent; a tensor where compiled code must not be built again for every value
    """
    # TINY: with p below one the slope at zero would be infinite.
    powers = (upper + TINY).pow(p)
    positions = powers.shape[1:-1] if stacked else powers.shape[:-1]
    sums = powers.flatten(1, -2).sum(1) if stacked else powers.flatten(0, -2).sum(0)
    means = sums / math.prod(positions)
    return means.sum() if beta == 0 else (means * (1 + beta * torch.log2(1 + sums))).sum()


def annealed_p(recipe: Recipe, step: int) -> float:
    """The exponent at a step: linear from `pnorm` to `final_p` between two shares of training."""
    share = step / max(recipe.steps, 1)
    span = recipe.anneal_to - recipe.anneal_from
    done = (
        min(max((share - recipe.anneal_from) / span, 0.0), 1.0)
        if span > 0
        else float(share >= recipe.anneal_from)
    )
    return recipe.pnorm + (recipe.final_p - recipe.pnorm) * done


def learning_rate(recipe: Recipe, step: int) -> float:
    """Linear warm-up, then constant, linear or cosine from 1 to `final_lr` of the peak."""
    return scheduled(step, recipe.steps, recipe.lr, recipe.schedule, recipe.final_lr, recipe.lr_warmup)


def scheduled(step: int, steps: int, peak: float, form: str, last: float, share: float) -> float:
    """The rate at a step of `steps`: up to `peak` over a share of them, then by its form to `last` of it."""
    warmup = int(share * steps)
    if step < warmup:
        return peak * step / warmup
    if form == "constant":
        return peak
    done = min((step - warmup) / max(steps - warmup - 1, 1), 1.0)
    shape = 1 - done if form == "linear" else 0.5 * (1 + math.cos(math.pi * done))
    return peak * (last + (1 - last) * shape)
