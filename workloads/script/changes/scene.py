"""What a change from outside may touch, and how a toggle makes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from perfsweep.workloads.api import Device, LevelValue
from perfsweep.workloads.script.call_sites import CallSites
from perfsweep.workloads.script.changes.loss_scaling import Clipping
from perfsweep.workloads.script.changes.options import LoaderOptions, UpdateOptions
from perfsweep.workloads.script.changes.own_choices import AttentionKernels, OwnChoices
from perfsweep.workloads.script.watched import Watched


@dataclass
class Scene:
    """A script that is about to start, and what was seen of it later.

    Attributes
    ----------
    script : name of the script's file, for messages
    undo : puts the process back as it was
    blocks : class of the modules whose activations are recomputed
    at_first_mark : called once models, loaders and optimisers are known, before the first measured iteration
    levels : of the arm, where they are not the baseline
    own : what the script does itself
    loaders, updates, attention : what it asks of loaders and optimisers, and the kernels of its attention
    clipping : the functions that clip its gradients
    sites : the calls that toggles act on
    """

    script: str
    device: Device
    watched: Watched
    undo: ExitStack
    blocks: str = ""
    at_first_mark: list[Callable[[], None]] = field(default_factory=list)
    levels: Mapping[str, LevelValue] = field(default_factory=dict)
    own: OwnChoices = field(default_factory=OwnChoices)
    loaders: LoaderOptions = field(default_factory=LoaderOptions)
    updates: UpdateOptions = field(default_factory=UpdateOptions)
    attention: AttentionKernels = field(default_factory=AttentionKernels)
    clipping: Clipping = field(default_factory=Clipping)
    sites: CallSites = field(default_factory=CallSites)

    @property
    def modules(self) -> tuple[nn.Module, ...]:
        """The outermost modules with parameters that the script called."""
        return tuple(self.watched.modules)


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


NO_MODULE = "calls no module with parameters that outlives its first iteration"
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
