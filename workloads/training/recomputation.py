"""Activations that the backward pass computes once more."""

from __future__ import annotations

import functools
from collections.abc import Iterable

from torch import nn
from torch.utils.checkpoint import checkpoint


def recompute(blocks: Iterable[nn.Module]) -> None:
    """Have the forward pass of each block kept no longer than it runs, and run again in the backward pass."""
    for block in blocks:
        block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)  # type: ignore[method-assign]
