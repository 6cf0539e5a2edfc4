"""Logits of a step's actions, and the greedy choice: the first of those within tau of the best is taken.

B rows, L columns for successors (CAP in grids). The special action TRUE, FALSE or END of each row is the last
column.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from perfsweep.workloads.prover.maths.packing import Lists

TAU = 1e-2
FLOAT32_DOUBT = 2e-6
"""Relative distance from the threshold below which rounding in float32 could turn a choice."""


class Scores(NamedTuple):
    """Logits [B, L + 1]; rows without room [B]; values [X, .] and where successors' are: slot [B, L]."""

    logits: Tensor
    deferred: Tensor
    values: Tensor
    slot: Tensor


class RaggedScores(NamedTuple):
    """Logits of n successors end to end [n] and of specials [B]; values [m, .], and where successors' are [n]
    (None: each at its own number).
    """

    logits: Tensor
    last: Tensor
    values: Tensor
    place: Tensor | None


class Specials(NamedTuple):
    """Special action of each row: its kind (0 TRUE, 1 FALSE, 2 END) [B]; whether it is the only one [B]."""

    kind: Tensor
    forced: Tensor


def specials(lists: Lists) -> Specials:
    """TRUE on a proof, FALSE for an empty list, else END."""
    empty = lists.sizes == 0
    return Specials(torch.where(lists.proof, 0, torch.where(empty, 1, 2)), lists.proof | empty)


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
