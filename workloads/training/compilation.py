"""torch.compile of a whole model, and blocks of it that are recomputed."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

MODES: Mapping[str, str | None] = {
    "default": None,
    "reduce_overhead": "reduce-overhead",
    # "max-autotune" has CUDA graphs as well, and would be two changes at once.
    "max_autotune": "max-autotune-no-cudagraphs",
}
"""The modes of torch.compile by levels of the toggle `compile`."""

GRAPHED = ("reduce_overhead",)
"""Levels whose code is replayed as CUDA graphs."""


def compile_call(call: Callable[..., Any], level: str, *, fullgraph: bool = False) -> Callable[..., Any]:
    """A model, or the bound method that it is called by, compiled at a level of the toggle `compile`."""
    if not isinstance(call, nn.Module):
        call = _visible(call)
    return torch.compile(call, fullgraph=fullgraph, mode=MODES[level])


def _visible(call: Callable[..., Any]) -> Callable[..., Any]:
    """`call` in a frame of its own.

    The compiler does not compile functions of torch, such as `_call_impl` and all of `nn.Sequential`: it
    would compile the user's modules inside them one at a time, or silently nothing. It remembers shapes by
    the name of the code: if models shared a name, shapes would become dynamic, and kernels slower.
    """

    def call_visibly(*args: Any, **kwargs: Any) -> Any:
        return call(*args, **kwargs)

    call_visibly.__code__ = call_visibly.__code__.replace(co_name=f"call_visibly_{next(_NUMBERS)}")
    return call_visibly


_NUMBERS = itertools.count()


def compile_model(model: nn.Module, level: str, *, fullgraph: bool = False) -> Callable[..., Any]:
    """The model as it runs at a level of the toggle `compile`: off, or one of `MODES`.

    `fullgraph` makes a graph break an error; otherwise the code would be slower, and you would not know why.
    """
    if level == "off":
        return model
    compiled = compile_call(model, level, fullgraph=fullgraph)
    if level not in GRAPHED:
        return compiled

    def replay(*inputs: Any) -> Any:
        # from here on results of the previous replay may be overwritten
        torch.compiler.cudagraph_mark_step_begin()
        return compiled(*inputs)

    return replay


def recompute(blocks: Iterable[nn.Module]) -> None:
    """Drop the activations of each block after its forward pass, and recompute them in the backward pass."""
    for block in blocks:
        block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)  # type: ignore[method-assign]
