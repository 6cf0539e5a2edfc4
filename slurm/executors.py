"""The executors there are, imported when they are used."""

from __future__ import annotations

import importlib

from perfsweep.slurm.jobs import Executor

EXECUTORS = {
    "slurm": "perfsweep.slurm.executor:SlurmExecutor",
    "local": "perfsweep.slurm.local:LocalExecutor",
    "inprocess": "perfsweep.slurm.local:InProcessExecutor",
}
"""Classes by the name that `cluster.executor` takes; `auto` takes the first that does not refuse."""


def find(name: str) -> type[Executor]:
    """Import the executor called `name`."""
    module, _, cls = EXECUTORS[name].partition(":")
    return getattr(importlib.import_module(module), cls)
