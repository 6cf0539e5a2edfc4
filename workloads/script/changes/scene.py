"""What a change from outside may touch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field

from torch import nn

from perfsweep.workloads.api import Device, LevelValue
from perfsweep.workloads.script.call_sites import CallSites
from perfsweep.workloads.script.changes.attention_kernels import AttentionKernels
from perfsweep.workloads.script.changes.loader_options import LoaderOptions
from perfsweep.workloads.script.changes.loss_scaling import Clipping
from perfsweep.workloads.script.changes.own_choices import OwnChoices
from perfsweep.workloads.script.changes.update_options import UpdateOptions
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
