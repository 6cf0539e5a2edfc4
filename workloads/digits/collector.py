"""When Python's garbage collector runs."""

from __future__ import annotations

import gc
from dataclasses import dataclass

# What lives as long as the training is there by now, the optimiser's state and compiled code included, and
# measurements have not begun: warm-up takes five iterations or more.
FREEZE_AT = 3


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
            gc.collect()
            self.runs += 1

    def after_iteration(self, iteration: int) -> None:
        """Freeze if it is time; `iteration` counts from 1."""
        if iteration == self.freeze_at:
            gc.collect()
            gc.freeze()

    def close(self) -> None:
        """Leave the process as it was found."""
        if self.freeze_at:
            gc.unfreeze()


def collector_for(level: str) -> Collector:
    """The collector of a level of the toggle `gc`."""
    return {
        "each_eval": Collector(every=1),
        "rarely": Collector(every=10),
        "frozen": Collector(freeze_at=FREEZE_AT),
    }[level]
