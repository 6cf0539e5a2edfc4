"""A workload of your own: toggles inside a computation, and a check that results stay the same.

It looks for the nearest of many points, again and again. Two toggles say how: `norms` computes the points'
lengths in every step or once, `search` sorts all distances or only finds the smallest. The check `nearest`
compares what each arm found; the counters show that each level really changes something.

    perfsweep check own_workload:Nearest
    perfsweep sweep workload=own_workload:Nearest sweep=ablation

A value of Config comes from the command line: workload.points=4000
"""

from dataclasses import dataclass

import torch

from perfsweep.workloads.api import Check, Comparator, Evidence, Level, Toggle, Workload


@dataclass
class Config:
    """The size of the problem."""

    points: int = 2000
    queries: int = 64
    width: int = 32


class Nearest(Workload):
    """Which point is nearest to each query? The first level of a toggle is its baseline."""

    Config = Config
    unit = "query"
    toggles = (
        Toggle(
            "norms",
            (Level("each"), Level("once", witness="norms_computed")),
            "compute the lengths of the points in every step, or once",
        ),
        Toggle(
            "search",
            (Level("sort"), Level("min", witness="sorted_rows")),
            "sort all distances, or find the smallest",
        ),
    )
    checks = (Check("nearest", Comparator.IDENTICAL),)

    def setup(self, config, levels, context):
        """Draw the data by the seed of the trial, and choose the paths: this is not timed."""
        self.draw = torch.Generator().manual_seed(context.seed)
        self.points = torch.randn(config.points, config.width, generator=self.draw)
        self.config, self.sorts = config, levels["search"] == "sort"
        self.lengths = self.points.square().sum(dim=1) if levels["norms"] == "once" else None
        self.steps = self.norms_computed = self.sorted_rows = 0

    def step(self, clock):
        """Find the nearest point of each of some new queries."""
        queries = torch.randn(self.config.queries, self.config.width, generator=self.draw)
        with clock.phase("distances"):
            lengths = self.lengths
            if lengths is None:
                lengths = self.points.square().sum(dim=1)
                self.norms_computed += len(lengths)
            distances = lengths - 2 * queries @ self.points.T
        with clock.phase("search"):
            if self.sorts:
                self.nearest = distances.argsort(dim=1)[:, 0]
                self.sorted_rows += len(queries)
            else:
                self.nearest = distances.argmin(dim=1)
        self.steps += 1

    def progress(self):
        """Queries answered so far: times are per query."""
        return float(self.steps * self.config.queries)

    def evidence(self):
        """What the check compares."""
        return Evidence({"nearest": self.nearest})

    def counters(self):
        """What shows that a level acts, on any machine."""
        return {"norms_computed": float(self.norms_computed), "sorted_rows": float(self.sorted_rows)}
