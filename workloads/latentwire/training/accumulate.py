"""Gradients of a window, piece by piece, in the forms of the toggles accum and model_backward."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.latentwire.data.batches import Piece, Window
from perfsweep.workloads.latentwire.maths.objective import Objective, Phase
from perfsweep.workloads.latentwire.training.updates import Updates


@dataclass(frozen=True)
class Form:
    """Levels of accum, model_backward and oom, and the faults that are injected."""

    each: bool
    per_model: bool
    chatty: bool
    backoff: bool = False
    oom_above: int | None = None


class Accumulator:
    """Adds the gradients of whole windows.

    A window that runs out of memory is started over with pieces of half the size, the same rows and the same
    random state; the size that worked is remembered for each width of sources.
    """

    def __init__(self, objective: Objective, updates: Updates, form: Form, counts: Counter[str]) -> None:
        self._objective, self._updates, self._form, self._counts = objective, updates, form, counts
        self._largest: dict[int, int] = {}

    def window(self, window: Window, phase: Phase) -> Tensor:
        """Gradients of a window into the parameters; returns terms [6]: tf, first, kce, kd, extra, total."""
        if not self._form.backoff:
            return self._all_pieces(window.pieces, phase)
        states = _random_states()
        while True:
            pieces = self._fitted(window.pieces)
            try:
                return self._all_pieces(pieces, phase)
            except torch.OutOfMemoryError as error:
                self._shrink(pieces, error)
            # Outside the handler: the traceback held the failed pass's tensors.
            self._updates.optimizer.zero_grad(set_to_none=True)
            _restore(states)
            if torch.cuda.is_initialized():
                torch.cuda.empty_cache()

    def once(self, window: Window, phase: Phase) -> None:
        """A window as cut, to see if it fits: no second try; leaves no gradients or random numbers."""
        states = _random_states()
        try:
            self._all_pieces(window.pieces, phase)
        finally:
            self._updates.optimizer.zero_grad(set_to_none=True)
            _restore(states)

    def _shrink(self, pieces: list[Piece], error: torch.OutOfMemoryError) -> None:
        rows = max(len(piece) for piece in pieces)
        if rows == 1:
            raise ConfigError(
                "memory ran out with a single row (micro_batch=1): use a smaller workload.preset or"
                " grad_checkpointing=on"
            ) from error
        self._counts["retries"] += 1
        for piece in pieces:
            self._largest[piece.source.shape[1]] = rows // 2

    def _fitted(self, pieces: list[Piece]) -> list[Piece]:
        fitted = []
        for piece in pieces:
            size = min(self._largest.get(piece.source.shape[1], len(piece)), len(piece))
            fitted += (
                [piece]
                if size >= len(piece)
                else [piece.rows(i, i + size) for i in range(0, len(piece), size)]
            )
        return fitted

    def _all_pieces(self, pieces: list[Piece], phase: Phase) -> Tensor:
        form, terms, graphs = self._form, list[Tensor](), list[Tensor]()
        for number, piece in enumerate(pieces):
            self._counts["micro_steps"] += 1
            self._fail_if_told(piece)
            with phase("encode"):
                z = self._objective.latents(piece)
            loss, of_piece = self._models(z, piece, number == 0, phase)
            if form.chatty:
                self._read(of_piece)
            terms += of_piece
            if loss is not None and form.each:
                self._backward(loss, phase)
            elif loss is not None:
                graphs.append(loss)
        if graphs:
            self._counts["graphs_kept"] += len(graphs)
            self._backward(torch.stack(graphs).sum(), phase)
        penalty = self._objective.scale_penalty().detach()
        if not terms:  # a last window with fewer rows than ranks
            return torch.zeros(6, device=penalty.device, dtype=penalty.dtype)
        total = torch.stack(terms).sum(0)
        return torch.cat((total[:5], (total[5] + penalty).reshape(1)))

    def _models(
        self, z: Tensor, piece: Piece, first: bool, phase: Phase
    ) -> tuple[Tensor | None, list[Tensor]]:
        """Loss of all models of a piece, None where gradients are in place already; terms [6] of each."""
        leaf = z.detach().requires_grad_() if self._form.per_model else z
        losses, terms = [], []
        for number in self._objective.models:
            loss, of_model = self._objective.loss(number, leaf, piece, phase)
            terms.append(torch.cat((of_model, loss.detach().reshape(1))))
            if self._form.per_model:
                self._backward(loss, phase)
            else:
                losses.append(loss)
        if first:
            losses.append(self._objective.scale_penalty())
        if not self._form.per_model:
            return torch.stack(losses).sum(), terms
        if first:
            self._backward(losses[-1], phase)
        with phase("backward"):
            z.backward(leaf.grad)
        self._counts["backward_calls"] += 1
        return None, terms

    def _backward(self, loss: Tensor, phase: Phase) -> None:
        with phase("backward"):
            (loss * self._updates.loss_scale).backward() if self._updates.scaled else loss.backward()
        self._counts["backward_calls"] += 1

    def _read(self, terms: list[Tensor]) -> None:
        """Every term of every model on the host, and an assertion on each, as upstream has it."""
        for of_model in terms:
            for term in of_model.unbind():
                self._counts["syncs"] += 2
                if not (math.isfinite(term.item()) or torch.isfinite(term).item()):
                    self._counts["broken_terms"] += 1

    def _fail_if_told(self, piece: Piece) -> None:
        above = self._form.oom_above
        if above is not None and len(piece) > above:
            raise torch.OutOfMemoryError(
                f"injected: {len(piece)} rows are more than workload.oom_above={above}"
            )


def _random_states() -> list[Any]:
    cuda = torch.cuda.get_rng_state() if torch.cuda.is_initialized() else None
    return [torch.get_rng_state(), cuda]


def _restore(states: list[Any]) -> None:
    torch.set_rng_state(states[0])
    if states[1] is not None:
        torch.cuda.set_rng_state(states[1])
