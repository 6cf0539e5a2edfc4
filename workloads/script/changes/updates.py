"""How optimisers update, by their constructors, and how gradients are reset."""

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
    made = {type(one).__name__ for one in scene.watched.made}
    if any(level in one.defaults for one in scene.watched.made):
        return None
    if not made:
        return "makes no optimiser"
    return f"has no optimiser with a {level} implementation; it has: {', '.join(sorted(made))}"


DROPS = {"zero": False, "none": True}
"""Whether each level of the toggle `zero_grad` drops gradients."""


def reset_obstacle(scene: Scene, level: LevelValue) -> str | None:
    """Why gradients cannot be reset otherwise."""
    asked, drops = scene.own.drops_gradients, DROPS[str(level)]
    if asked == {drops}:
        return f"{'drops' if drops else 'zeroes'} its gradients itself"
    return None


def late_reset_obstacle(scene: Scene, level: LevelValue) -> str | None:
    """The same once an iteration was seen: many scripts reset gradients after their update."""
    if scene.own.drops_gradients:
        return reset_obstacle(scene, level)
    return "does not call zero_grad of an optimiser or module"


def begin_reset(scene: Scene, level: LevelValue) -> None:
    """Reset gradients as `level` says, whatever a call asks for."""
    scene.own.drops_instead = DROPS[str(level)]
