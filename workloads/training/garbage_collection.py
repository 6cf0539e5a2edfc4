"""When Python's garbage collector runs."""

from __future__ import annotations

import gc
from dataclasses import dataclass
from typing import Any

# What lives as long as the training is there by now, the optimiser's state and compiled code included, and
# measurements have not begun: warm-up takes five iterations or more.
FREEZE_AT = 3

POLICIES: dict[str, dict[str, Any]] = {
    "automatic": {},
    "each_eval": {"every": 1},
    "rarely": {"every": 10},
    "frozen": {"freeze_at": FREEZE_AT},
}
"""Fields of a `Collector` for each level of the toggle `gc`; automatic is what a training without it does."""


@dataclass
class Collector:
    """Full collections after evaluations, or frozen objects that no collection looks at again.

    A full collection visits every object of the process; PyTorch and what it imports are some 300,000, and a
    visit to all of them takes as long as dozens of iterations. Freezing exempts what exists; Python's own
    collections then stay cheap.

    Attributes
    ----------
    every : evaluations from one collection to the next; 0 for none
    freeze_at : iteration after which everything that exists is frozen; 0 for never
    """

    every: int = 0
    freeze_at: int = 0
    evaluations: int = 0
    runs: int = 0

    def after_evaluation(self) -> None:
        """Collect if it is time."""
        self.evaluations += 1
        if self.every and self.evaluations % self.every == 0:
            self.collect()

    def after_iteration(self, iteration: int) -> None:
        """Freeze if it is time; `iteration` counts from 1."""
        if iteration == self.freeze_at:
            gc.collect()
            gc.freeze()

    def collect(self) -> None:
        """Collect now."""
        gc.collect()
        self.runs += 1

    def close(self) -> None:
        """Leave the process as it was found."""
        if self.freeze_at:
            gc.unfreeze()
