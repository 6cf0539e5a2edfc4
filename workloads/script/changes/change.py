"""A toggle's way to act on a script."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from perfsweep.workloads.api import LevelValue
from perfsweep.workloads.script.changes.scene import Scene


def never(scene: Scene, level: LevelValue) -> None:
    """Find no obstacle."""


def nothing(scene: Scene, level: LevelValue) -> None:
    """Change nothing."""


@dataclass(frozen=True)
class Change:
    """How a toggle acts.

    Attributes
    ----------
    obstacle : why a level cannot act on what was seen of the script until its first mark, or None
    begin : makes the change at the first mark
    prepare : makes it, or what it needs, before the script starts
    late_obstacle : another one, that is known at the end of the first iteration after the first mark
    """

    obstacle: Callable[[Scene, LevelValue], str | None]
    begin: Callable[[Scene, LevelValue], None] = nothing
    prepare: Callable[[Scene, LevelValue], None] = nothing
    late_obstacle: Callable[[Scene, LevelValue], str | None] = never


NO_MODULE = "calls no module with parameters before its first iteration ends"
"""Why a change of modules cannot act."""
