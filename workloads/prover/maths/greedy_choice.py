"""The greedy choice and its tie rule: the first of the logits within tau of the best is taken."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

TAU = 1e-2
FLOAT32_DOUBT = 2e-6
"""Relative distance from the threshold below which rounding in float32 could turn a choice."""


class Choice(NamedTuple):
    """Column, log-probability and doubt of each row: [B] each."""

    column: Tensor
    log_prob: Tensor
    ambiguous: Tensor


def choose(logits: Tensor, forced: Tensor, doubt: float = FLOAT32_DOUBT) -> Choice:
    """Choose a column of logits [B, L + 1], the last of which is real in every row; others may be -inf.

    Rows in `forced` [B] have this last action only: log-probability exactly 0 and no doubt.
    """
    top = logits.max(1).values
    gap = top[:, None] - logits
    near = gap <= TAU
    # exp(-inf) is 0 for columns without an action; the best itself contributes 1.
    weight = torch.where(near, torch.ones_like(gap), torch.exp(-gap)).sum(1)
    unsure = ((gap - TAU).abs() < doubt * (1 + top.abs())[:, None]).any(1)
    column = near.to(torch.uint8).argmax(1)
    last = logits.shape[1] - 1
    return Choice(
        column=torch.where(forced, last, column),
        log_prob=torch.where(forced, torch.zeros_like(weight), -torch.log(weight)),
        ambiguous=unsure & ~forced,
    )
