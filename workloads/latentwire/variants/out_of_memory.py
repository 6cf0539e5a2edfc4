"""A second try where memory runs out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perfsweep.workloads.api import Level, Toggle
from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.latentwire.variants.gradients import random_states, restore
from perfsweep.workloads.latentwire.variants.part import Part
from perfsweep.workloads.variant import Variant

if TYPE_CHECKING:
    from torch import Tensor

    from perfsweep.workloads.latentwire.data.batches import Piece, Window


class Backoff(Part):
    """A window that does not fit is started over with pieces of half the size.

    It has the same rows and the same random state; the size that worked is remembered for each width of
    sources.
    """

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self.largest: dict[int, int] = {}

    def gradients(self, window: Window) -> Tensor:
        """Gradients of a window into the parameters; returns its terms [6]."""
        import torch

        states = random_states()
        while True:
            pieces = self._fitted(window.pieces)
            try:
                return self.all_pieces(pieces)
            except torch.OutOfMemoryError as error:
                self._shrink(pieces, error)
            # Outside the handler: the traceback held the failed pass's tensors.
            self.optimizer.zero_grad(set_to_none=True)
            restore(states)
            if torch.cuda.is_initialized():
                torch.cuda.empty_cache()

    def _shrink(self, pieces: list[Piece], error: Exception) -> None:
        rows = max(len(piece) for piece in pieces)
        if rows == 1:
            raise ConfigError(
                "memory ran out with a single row (micro_batch=1): use a smaller workload.preset or"
                " grad_checkpointing=on"
            ) from error
        self.counts["retries"] += 1
        for piece in pieces:
            self.largest[piece.source.shape[1]] = rows // 2

    def _fitted(self, pieces: list[Piece]) -> list[Piece]:
        fitted = []
        for piece in pieces:
            size = min(self.largest.get(piece.source.shape[1], len(piece)), len(piece))
            fitted += (
                [piece]
                if size >= len(piece)
                else [piece.rows(i, i + size) for i in range(0, len(piece), size)]
            )
        return fitted


VARIANTS = (
    Variant(
        Toggle(
            "oom",
            (Level("die"), Level("backoff", witness="retries")),
            "halve the piece when memory runs out",
            "Risks",
        ),
        {"backoff": Backoff},
    ),
)
