"""The objective of one piece: latents, soft tokens, answers of student and teacher, weighted losses."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from perfsweep.workloads.latentwire.data.batches import ModelPiece, Piece
from perfsweep.workloads.latentwire.maths import losses
from perfsweep.workloads.latentwire.maths.encoder import LatentEncoder, calibrated, table_rms
from perfsweep.workloads.latentwire.maths.lm import CausalLM
from perfsweep.workloads.latentwire.maths.student import Prefix, Student
from perfsweep.workloads.latentwire.maths.teacher import Teacher
from perfsweep.workloads.latentwire.maths.trainables import Trained

Phase = Callable[[str], AbstractContextManager[Any]]


@dataclass
class Options:
    """Optional losses and how they and calibration are computed."""

    calibrate_once: bool
    chatty: bool
    state_kd: bool = False
    manifold: bool = False
    adaptive_first: bool = False
    autocast: Callable[[], AbstractContextManager[Any]] = contextlib.nullcontext


class Model:
    """One frozen model with all that serves it."""

    def __init__(
        self,
        lm: CausalLM,
        trained: Trained,
        student: Student,
        teacher: Teacher,
        options: Options,
        counts: Counter[str],
        rho: Tensor,
    ):
        self.lm, self.trained, self.student, self.teacher = lm, trained, student, teacher
        self._options, self._counts = options, counts
        self.rho = rho
        wide = lm.table.float()
        self._table_mean, self._table_std = (wide.mean(0), wide.std(0)) if options.manifold else (None, None)
        self._mixture = losses.mixed(lm.table.device, self.rho.dtype)

    def prefix(self, z: Tensor) -> Prefix:
        """z [B, M, d_z] -> soft tokens [B, M, d], as loud as the table's rows, and their deep prefix.

        The deep prefix is made before calibration: keys made of tokens as faint as a table's rows would
        hardly change attention.
        """
        trained = self.trained
        with self._options.autocast():
            soft = trained.adapter(z)
            past = None if trained.deep is None else trained.deep(soft)
        return Prefix(self._calibrated(soft.to(self.rho.dtype)), past)

    def _calibrated(self, soft: Tensor) -> Tensor:
        if self._options.calibrate_once:
            return calibrated(soft, self.rho)
        self._counts["table_reads"] += 1
        rho = table_rms(self.lm.table)
        if not self._options.chatty:
            return calibrated(soft, rho)
        self._counts["syncs"] += 1
        return calibrated(soft, rho.item())

    def loss(self, z: Tensor, piece: ModelPiece, phase: Phase) -> tuple[Tensor, Tensor]:
        """The piece's share of this model's loss [], and its terms [5]: tf, first, kce, kd, extra."""
        options = self._options
        with phase("teacher"):
            given = self.teacher(piece.prompts)
        with phase("student"):
            prefix = self.prefix(z)
            with options.autocast():
                out = self.student(prefix, piece.answer)
            terms = losses.model_terms(out, given.distance(out.early_logits), piece.weights)
            extra = self._extra(out, given.states, prefix, piece, terms)
            mixture = self._mixture
            if options.adaptive_first:
                lift = (terms[1] / terms[0]).detach().clamp(1, 8)
                mixture = torch.cat((mixture[:1], mixture[1:2] * lift, mixture[2:]))
            total = torch.dot(terms, mixture)
            if extra is None:
                return total, torch.cat((terms.detach(), terms.new_zeros(1)))
            return total + extra, torch.cat((terms.detach(), extra.detach().reshape(1)))

    def _extra(
        self, out: Any, states: list[Tensor], prefix: Prefix, piece: ModelPiece, terms: Tensor
    ) -> Tensor | None:
        parts = []
        if self._options.state_kd:
            weights = piece.weights[2, :, : self.student.early_tokens]
            parts.append(losses.STATE_WEIGHT * losses.state_distance(out.states, states, weights))
        if self._options.manifold:
            assert self._table_mean is not None and self._table_std is not None
            parts.append(
                losses.MANIFOLD_WEIGHT
                * losses.manifold_distance(prefix.tokens, self._table_mean, self._table_std)
            )
        return torch.stack([part.to(terms.dtype) for part in parts]).sum() if parts else None


class Objective:
    """The models of this rank, by their number, over one encoder.

    `total_models` counts those of all ranks; `penalty_share` is this rank's part of a penalty that all ranks
    compute.
    """

    def __init__(
        self,
        encoder: LatentEncoder,
        models: Mapping[int, Model],
        total_models: int,
        options: Options,
        counts: Counter[str],
        penalty_share: float = 1.0,
    ) -> None:
        self.encoder = encoder
        self.models = models
        self.autocast = options.autocast
        self._total_models, self._penalty_share = total_models, penalty_share
        self._counts = counts

    def latents(self, piece: Piece) -> Tensor:
        """z [B, M, d_z]"""
        self._counts["encoder_positions"] += piece.source.numel()
        self._counts["encoder_kernels"] += self.encoder.native * (len(self.encoder.bytes.layers) + 1)
        with self.autocast():
            z = self.encoder(piece.source)
        return z.to(self.encoder.pooler.queries.dtype)

    def loss(self, number: int, z: Tensor, piece: Piece, phase: Phase) -> tuple[Tensor, Tensor]:
        """Model `number`'s share of the total [], and terms [5] as shares of the mean over models."""
        loss, terms = self.models[number].loss(z, piece.models[number], phase)
        return loss / self._total_models, terms / self._total_models

    def scale_penalty(self) -> Tensor:
        """[] what keeps the adapters' scales near one; once for a window."""
        scales = torch.stack([model.trained.adapter.scale for model in self.models.values()])
        return (scales - 1).square().sum() * (losses.SCALE_WEIGHT * self._penalty_share / self._total_models)
