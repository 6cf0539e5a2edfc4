"""What is said of a script that is measured."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from perfsweep.fields import MOST_NUMBER
from perfsweep.workloads.errors import Ruled

AUTOMATIC = "auto"
"""The iteration ends at the script's own marks where it imports perfsweep, else with its updates."""

OPTIMIZER, BACKWARD, LOADER, MARKS = "optimizer.step", "backward", "loader", "marks"
FUNCTION = "package.module:function"  # any that is named so

FEWEST, LEAST = 12, {"iterations": 3, "warmup_max": 5, "evidence_iterations": 3}
"""Iterations that a script needs to be measured, and the settings of `measure` that do with so few."""

SCRATCH, REFUSE, ALLOW = WRITES = ("scratch", "refuse", "allow")
"""Where a script may write: into a copy of its folder that is the trial's own, nowhere, or where it wants."""


@dataclass
class ScriptConfig(Ruled):
    """A script and how it is read.

    Attributes
    ----------
    path : the script, as you would pass it to ``python``
    args : its arguments; ``{seed}`` and ``{scratch}`` are filled in, a folder of the trial's own for the last
    module : its dotted name, where it starts as ``python -m`` does
    folder : current folder of the script; empty: where the command was typed
    iteration : what ends an iteration: auto, optimizer.step, backward, loader, marks, or
        package.module:function
    every : such ends that make one iteration
    units : units of one iteration; 0: examples where its first iterations show some, else iterations
    blocks : class of the modules whose activations `grad_checkpointing` recomputes
    writes : scratch, refuse or allow: what it writes below `folder` goes into the trial's own, or there
    ranks : processes of each trial, with torchrun's variables; null: one, without them
    toggles : toggles of your own, as written in the script's YAML
    """

    path: str = ""
    args: str = ""
    module: str = ""
    folder: str = ""
    iteration: str = AUTOMATIC
    every: int = 1
    units: float = 0.0
    blocks: str = ""
    writes: str = SCRATCH
    ranks: int | None = None
    toggles: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse what cannot be meant.

        Raises
        ------
        ConfigError
            A field is out of range; the message names it.
        """
        ends = (AUTOMATIC, OPTIMIZER, BACKWARD, LOADER, MARKS)
        named = self.iteration in ends or re.fullmatch(r"[\w.]+:[\w.]+", self.iteration)
        self._require("iteration", bool(named), f"one of {', '.join(ends)}, or {FUNCTION}")
        self._require("every", 1 <= self.every <= MOST_NUMBER, f"a whole number from 1 to {MOST_NUMBER:g}")
        self._require("units", 0 <= self.units <= MOST_NUMBER, f"a number from 0 to {MOST_NUMBER:g}")
        self._require("writes", self.writes in WRITES, f"one of {', '.join(WRITES)}")
        self._require("ranks", self.ranks is None or self.ranks >= 1, "a whole number from 1")
