"""In which type events are evaluated and in which their sums are kept."""

from __future__ import annotations

from dataclasses import dataclass

import torch

BLOCK_EVENTS = 512
"""Longest run of float32 additions whose error stays harmless next to the cancellation in M1 - S."""


@dataclass(frozen=True)
class Precision:
    """`compute` is the type of one event's terms, `sums` that of accumulators and parameters.

    `block` adds events in float32 over at most BLOCK_EVENTS and joins the blocks in float64.
    """

    name: str
    compute: torch.dtype
    sums: torch.dtype
    block: bool = False


PRECISIONS = {
    "f32": Precision("f32", torch.float32, torch.float32),
    "f64": Precision("f64", torch.float64, torch.float64),
    "f32acc64": Precision("f32acc64", torch.float32, torch.float64),
    "block": Precision("block", torch.float32, torch.float64, block=True),
}
