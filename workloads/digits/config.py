"""What the digits training trains."""

from __future__ import annotations

import math
from dataclasses import dataclass

from perfsweep.workloads.errors import Ruled

ROWS = 1797
"""Examples that there are."""


@dataclass(frozen=True)
class DigitsConfig(Ruled):
    """What is trained. Nothing here changes how: that is the toggles' part.

    Attributes
    ----------
    model : conv or mlp
    width, depth : channels (features), and number of residual blocks
    batch_size : examples per iteration
    lr, weight_decay : of AdamW
    train_fraction : share of the 1797 rows that is trained on; the rest is held out
    eval_every, checkpoint_every : epochs from one evaluation (checkpoint) to the next
    """

    model: str = "conv"
    width: int = 16
    depth: int = 1
    batch_size: int = 128
    lr: float = 3e-3
    weight_decay: float = 1e-2
    train_fraction: float = 0.8
    eval_every: int = 5
    checkpoint_every: int = 5

    def __post_init__(self) -> None:
        """Refuse what cannot be trained.

        Raises
        ------
        ConfigError
            A field is out of range; the message names it.
        """
        self._require("model", self.model in ("conv", "mlp"), "conv or mlp")
        for name in ("width", "depth", "batch_size", "eval_every", "checkpoint_every"):
            value = getattr(self, name)
            self._require(name, isinstance(value, int) and value >= 1, "a whole number from 1")
        self._require("lr", 0 < self.lr < math.inf, "a number above 0")
        self._require("weight_decay", 0 <= self.weight_decay < math.inf, "a number from 0")
        self._require("train_fraction", 0 < self.train_fraction < 1, "between 0 and 1")
        fits = self.batch_size <= self.train_rows
        self._require(
            "batch_size",
            fits,
            f"at most {self.train_rows}, the training rows of workload.train_fraction={self.train_fraction}",
        )

    @property
    def train_rows(self) -> int:
        """Rows that are trained on."""
        return int(ROWS * self.train_fraction)

    @property
    def epoch(self) -> int:
        """Iterations of one epoch."""
        return self.train_rows // self.batch_size
