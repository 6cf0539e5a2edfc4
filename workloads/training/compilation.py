"""torch.compile of a whole model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn


def compile_model(model: nn.Module, level: str, *, fullgraph: bool = False) -> Callable[..., Any]:
    """The model as it runs at a level of the toggle `compile`: off, default or reduce_overhead.

    `fullgraph` makes an interruption of the compiled code an error: it would run on, slower, and nobody would
    know why.
    """
    if level == "off":
        return model
    if level == "default":
        return torch.compile(model, fullgraph=fullgraph)
    graphed = torch.compile(model, fullgraph=fullgraph, mode="reduce-overhead")

    def replay(*inputs: Any) -> Any:
        # what the replay before this one wrote may be overwritten from here on
        torch.compiler.cudagraph_mark_step_begin()
        return graphed(*inputs)

    return replay
