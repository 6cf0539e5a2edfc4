"""Stochastic parameter decomposition. ``decompose`` does it from a program."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perfsweep.workloads.spd.library import Decomposition, decompose

__all__ = ["Decomposition", "decompose"]


def __getattr__(name: str) -> Any:
    # Plans read the declarations in this package without torch.
    if name in __all__:
        from perfsweep.workloads.spd import library

        return getattr(library, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
