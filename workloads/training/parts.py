"""What a training trains."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

ACTS_ON = {"grad_checkpointing": "blocks", "gc": "evaluate_every", "checkpoint": "save_every"}
"""The part that a toggle changes, for those that not every training has: without it a level does nothing."""


@dataclass(frozen=True)
class Parts:
    """What is trained.

    Attributes
    ----------
    model : as built on the host; it is moved to the device, compiled and so on by the loop
    data : a map-style data set whose rows are tensors, or tuples of tensors and numbers
    loss : from the model, as the arm runs it, and the tensors of a batch [rows, ...] to the mean loss [] of
        its rows
    optimizer : makes the optimiser: called with the parameters and with the keywords `foreach` and `fused`,
        which go to a class of torch.optim
    blocks : parts of the model whose activations ``grad_checkpointing=on`` recomputes
    held_out : rows that are not trained on, for `evaluate`: put on the device once, all together
    evaluate : from the model, uncompiled, and the tensors of `held_out` to figures that are logged with every
        loss, such as an accuracy
    evaluate_every, save_every : iterations from one evaluation (checkpoint) to the next; 0 for none
    fullgraph : whether compiled code must be one graph; an interruption is an error then
    """

    model: nn.Module
    data: Dataset[Any]
    loss: Callable[..., Tensor]
    optimizer: Callable[..., torch.optim.Optimizer] = torch.optim.AdamW
    blocks: Sequence[nn.Module] = ()
    held_out: Dataset[Any] | None = None
    evaluate: Callable[..., Mapping[str, float]] | None = None
    evaluate_every: int = 0
    save_every: int = 0
    fullgraph: bool = False
