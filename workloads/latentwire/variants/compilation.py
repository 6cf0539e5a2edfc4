"""Layers of the frozen models as compiled code."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

from perfsweep.workloads import toggles as shared
from perfsweep.workloads.api import Parity
from perfsweep.workloads.latentwire.variants.part import COMPILED, Part
from perfsweep.workloads.variant import Variant

if TYPE_CHECKING:
    from perfsweep.workloads.latentwire.data.batches import Shape

RECORDING_LIMIT = 4096
"""One function is every layer of every pass, each of which is a recording of its own: beyond torch's 128 it
would run without graphs, silently."""

RECOMPILE_LIMIT = 64  # two models, and a static shape for every length of prefix and answer


class CompiledLayers(Part):
    """Layers that are trained through; every window has the same shape."""

    compiling: dict[str, Any] = {}

    @property
    def block(self) -> Callable[..., Any] | None:
        """A compiled layer."""
        return self.compiled

    @cached_property
    def compiled(self) -> Callable[..., Any]:
        """The one function that is every layer of every model."""
        import torch

        from perfsweep.workloads.latentwire.maths.lm import run_layer

        torch._dynamo.config.recompile_limit = RECOMPILE_LIMIT  # type: ignore[attr-defined]
        return torch.compile(run_layer, dynamic=False, **self.compiling)

    def window_shape(self) -> Shape:
        """How windows are cut: the last one is filled up."""
        return dataclasses.replace(super().window_shape(), static=True)


class Replayed(CompiledLayers):
    """Their launches are recorded as CUDA graphs and replayed."""

    compiling: dict[str, Any] = {"mode": "reduce-overhead"}

    @cached_property
    def compiled(self) -> Callable[..., Any]:
        """The one function that is every layer of every model."""
        from torch._inductor import config

        config.triton.cudagraph_unexpected_rerecord_limit = RECORDING_LIMIT
        return super().compiled

    def mark_step(self) -> None:
        """Nothing that graphs of the last step wrote is read any more: replays may overwrite it."""
        import torch

        torch.compiler.cudagraph_mark_step_begin()


VARIANTS = (
    Variant(
        shared.compile(
            *("block", "reduce_overhead"),
            every={"parity": Parity.TOLERANCE, "bounds": COMPILED},
            each={"reduce_overhead": {"unsupported": shared.needs_graphs, "witness": "cudagraph_recordings"}},
        ),
        {"block": CompiledLayers, "reduce_overhead": Replayed},
    ),
)
