"""What is noted of the calls of a script's outermost modules."""

from __future__ import annotations

from types import FrameType
from typing import Any

from torch import Tensor, nn

from perfsweep.workloads.script.call_sites import CallSites
from perfsweep.workloads.script.edits.site import FORWARD


def note_forward(sites: CallSites, caller: FrameType, module: nn.Module, given: Any, result: Any) -> None:
    """Take note of a call while the module trains: who makes it, and what the module is called there."""
    if not module.training:
        return
    args, kwargs = given
    named = {**dict(enumerate(args)), **kwargs}
    images = tuple(name for name, one in named.items() if isinstance(one, Tensor) and one.dim() == 4)
    about = {"tensor": isinstance(result, Tensor), "images": images}
    device = next(module.parameters()).device.type
    sites.note(FORWARD, type(module).__name__, caller, held=module, device=device, **about)
