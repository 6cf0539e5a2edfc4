"""Losses from per-position cross entropies, with denominators of the whole effective batch.

l_ij is the cross entropy of answer token j of row i, n_i the answer's length, c_j the rows that have a token
j. Each piece of a batch adds numerators over global denominators; means over pieces, averaged, would be
another objective.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

TERMS = ("tf", "first", "kce", "kd", "state", "manifold", "scale", "total")
FIRST_WEIGHT, EARLY_WEIGHT, DISTILL_WEIGHT = 0.5, 0.5, 1.0
SCALE_WEIGHT = 0.05
STATE_WEIGHT, MANIFOLD_WEIGHT = 0.1, 0.01
TEMPERATURE = 2.0


@dataclass
class StudentOut:
    """What the student's passes gave for one piece.

    Attributes
    ----------
    ce : [B, T] cross entropies that the teacher-forced loss is made of
    ce_first : [B] those of the first token
    ce_early : [B, K] those of the early tokens
    early_logits : [B, K, V] that distillation compares
    first_logits : [B, V], for top-1 and top-5
    states : the first layers' outputs at the early positions, [B, K, d] each
    """

    ce: Tensor
    ce_first: Tensor
    ce_early: Tensor
    early_logits: Tensor
    first_logits: Tensor
    states: list[Tensor]


@dataclass
class Given:
    """What distillation compares with: the teacher's logits [B, K, V], and states."""

    logits: Tensor
    states: list[Tensor]

    def distance(self, student: Tensor) -> Tensor:
        """Divergence [B, K] of the student's logits [B, K, V]."""
        return divergence(student, self.logits.to(student.dtype))


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """logits [.., V] and targets [..] -> [..], at least in single precision"""
    return F.cross_entropy(logits.flatten(0, -2), targets.flatten(), reduction="none").view(targets.shape)


def divergence(student: Tensor, teacher: Tensor) -> Tensor:
    """tau^2 KL(teacher || student) of logits [.., V] at temperature tau -> [..]"""
    # tau^2 keeps gradients as large as at temperature one (Hinton et al. 2015).
    log_q = F.log_softmax(student / TEMPERATURE, dim=-1)
    log_p = F.log_softmax(teacher / TEMPERATURE, dim=-1)
    return TEMPERATURE**2 * F.kl_div(log_q, log_p, reduction="none", log_target=True).sum(-1)


def state_distance(student: list[Tensor], teacher: list[Tensor], weights: Tensor) -> Tensor:
    """Mean over layers of weighted squared differences of states [B, K, d]; weights [B, K] sum to one."""
    parts = [
        (weights * (s.float() - t.float()).square().mean(-1)).sum()
        for s, t in zip(student, teacher, strict=True)
    ]
    return torch.stack(parts).mean()


def manifold_distance(prefix: Tensor, table_mean: Tensor, table_std: Tensor) -> Tensor:
    """Squared differences of per-entry mean and deviation between a prefix [B, M, d] and a table."""
    flat = prefix.flatten(0, 1)
    mean = (flat.mean(0) - table_mean).square().mean()
    return mean + (flat.std(0, unbiased=False) - table_std).square().mean()


def model_terms(out: StudentOut, distance: Tensor, weights: Tensor) -> Tensor:
    """Numerators over global denominators: [4] teacher-forced, first, early, distillation of a piece.

    weights [3, B, T] as `term_weights` gives them, cut to the piece; `distance` [B, K] is the divergence.
    """
    early = weights[2, :, : distance.shape[1]]
    return torch.stack(
        [
            (weights[0] * out.ce).sum(),
            (weights[1, :, 0] * out.ce_first).sum(),
            (early * out.ce_early).sum(),
            (early * distance).sum(),
        ]
    )


def mixed(device: torch.device, dtype: torch.dtype) -> Tensor:
    """How much of each of `model_terms` goes into the total [4]."""
    return torch.tensor([1.0, FIRST_WEIGHT, EARLY_WEIGHT, DISTILL_WEIGHT], device=device, dtype=dtype)
