"""Names of shared toggles with other meanings, and their meanings under other names."""

from __future__ import annotations

from perfsweep.workloads.api import Level, Numbers, Toggle
from toys.odd import Endless


class SameNames(Endless):
    """Toggles called like shared ones that mean something else."""

    toggles = (
        Toggle("gc", (Level("grid"), Level("cloud")), "kind of the computed points", "toy"),
        Toggle("slab_size", (Level("small"), Level("large")), "a word", "toy"),
        Toggle("wandb_logging", (Level("buffered"), Level("each")), "what is drawn", "toy"),
    )


class OtherNames(Endless):
    """Toggles that declare what some shared ones declare."""

    toggles = (
        Toggle("rubbish", (Level("often"), Level("seldom")), "when to collect", "toy", owns_collector=True),
        Toggle("portion", (Level(1),), "how many at once", "toy", numbers=Numbers(1)),
        Toggle("reporting", (Level("late"), Level("at_once", commit_every=2)), "to W&B", "toy"),
    )
