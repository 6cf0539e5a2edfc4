"""A toggle's way to act on a script, also around the calls of a module."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

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


Call = Callable[..., Any]


def wrap(module: nn.Module, around: Callable[[Call], Call]) -> None:
    """Have every call of `module` run what `around` makes of it.

    `nn.Module.__call__` runs what is in `_compiled_call_impl` of the instance, where `Module.compile`
    puts its code: neither a hook nor a class is touched, and copies and checkpoints of the module leave it
    out. A class with a `__call__` of its own may not look there, so its `forward` is wrapped.
    """
    if type(module).__call__ is nn.Module.__call__:
        module._compiled_call_impl = around(module._compiled_call_impl or module._call_impl)
    else:
        vars(module)["forward"] = around(module.forward)
