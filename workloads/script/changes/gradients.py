"""How gradients are reset."""

from __future__ import annotations

from perfsweep.workloads.api import LevelValue
from perfsweep.workloads.script.changes.scene import Scene

DROPS = {"zero": False, "none": True}
"""Whether each level of the toggle `zero_grad` drops gradients."""


def obstacle(scene: Scene, level: LevelValue) -> str | None:
    """Why gradients cannot be reset otherwise."""
    asked, drops = scene.own.drops_gradients, DROPS[str(level)]
    if asked == {drops}:
        return f"{'drops' if drops else 'zeroes'} its gradients itself"
    return None


def late_obstacle(scene: Scene, level: LevelValue) -> str | None:
    """The same once an iteration was seen: many scripts reset gradients after their update."""
    if scene.own.drops_gradients:
        return obstacle(scene, level)
    return "does not call zero_grad of an optimiser or module"


def begin(scene: Scene, level: LevelValue) -> None:
    """Reset gradients as `level` says, whatever a call asks for."""
    scene.own.drops_instead = DROPS[str(level)]
