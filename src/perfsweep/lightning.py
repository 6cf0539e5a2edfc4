"""Explicit marks of a Lightning trainer: ``Trainer(..., callbacks=[Marks()])``."""

from __future__ import annotations

from typing import Any

from lightning import Callback

from perfsweep import mark


class Marks(Callback):
    """Ends an iteration with each of the trainer's optimiser steps."""

    def __init__(self) -> None:
        self._step = 0

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """End an iteration if the batch ended with an optimiser step."""
        if trainer.global_step != self._step:
            self._step = trainer.global_step
            mark()
