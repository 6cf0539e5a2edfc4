"""Explicit marks of a ``transformers.Trainer``: ``Trainer(..., callbacks=[Marks()])``."""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback

from perfsweep import mark


class Marks(TrainerCallback):
    """Ends an iteration with each of the trainer's steps."""

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """End an iteration."""
        mark()
