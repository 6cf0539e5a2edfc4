"""When Python's garbage collector runs."""

from __future__ import annotations

import gc
from dataclasses import dataclass
from typing import Any

# By then everything that lives as long as the training exists, such as the optimiser's state and compiled
# code. Measurements have not begun: warm-up takes five iterations or more.
FREEZE_AT = 3

POLICIES: dict[str, dict[str, Any]] = {
    "automatic": {},
    "each_eval": {"every": 1},
    "rarely": {"every": 10},
    "frozen": {"freeze_at": FREEZE_AT},
}
"""Fields of a `Collector` for each level of the toggle `gc`; a training without the toggle has automatic."""


@dataclass
class Collector:
    """Full collections after evaluations, or freezing of objects, which collections then skip.

    A full collection visits every object of the process, some 300,000 of PyTorch and its imports, and takes
    as long as dozens of iterations. Freezing exempts existing objects, so Python's own collections are cheap.

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
        """Restore the collector of the process."""
        if self.freeze_at:
            gc.unfreeze()
