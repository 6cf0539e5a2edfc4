"""Your own training with the shared toggles: you declare what is trained, and the loop does the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perfsweep.workloads.training.toggles import shared_toggles

if TYPE_CHECKING:
    from perfsweep.workloads.training.loop import Training
    from perfsweep.workloads.training.parts import Parts

__all__ = ["Parts", "Training", "shared_toggles"]


def __getattr__(name: str) -> Any:
    """Import the loop, and torch with it, on first use: declarations of toggles need neither."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from perfsweep.workloads.training import loop

    return getattr(loop, name)
