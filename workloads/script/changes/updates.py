"""Implementations of the optimisers' updates, by their constructors."""

from __future__ import annotations

from perfsweep.workloads.api import LevelValue
from perfsweep.workloads.script.changes.scene import Scene


def prepare(scene: Scene, level: LevelValue) -> None:
    """Give optimisers the implementation `level` from the start: their states differ."""
    scene.updates.level = str(level)


def obstacle(scene: Scene, level: LevelValue) -> str | None:
    """Why no optimiser can be given the implementation `level`."""
    if level in scene.updates.asked:
        return f"passes {level}=True to its optimiser itself"
    made = {type(one) for one in scene.watched.made}
    if any(level in one.defaults for one in scene.watched.made):
        return None
    names = ", ".join(sorted(cls.__name__ for cls in made)) or "none"
    return f"has no optimiser with a {level} implementation; it has: {names}"
