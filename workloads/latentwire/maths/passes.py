"""What a pass of a frozen model is given in addition to its tokens.

Dimensions: B rows, S positions, R positions that are read, T keys, g key heads, e head width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from perfsweep.workloads.latentwire.maths.attention import Allowed, Mask

KeyValues = list[tuple[Tensor, Tensor]]
"""Keys and values [1 or B, g, T, e] of every layer, rotated already."""


def keys_in(past: KeyValues | None) -> int:
    """Positions that `past` takes."""
    return 0 if past is None else past[0][0].shape[2]


def of_row(past: KeyValues | None, row: int) -> KeyValues | None:
    """Keys and values [1, g, T, e] of one row."""
    return None if past is None else [(k[row : row + 1], v[row : row + 1]) for k, v in past]


@dataclass(frozen=True)
class Prefix:
    """The tokens before an answer.

    Attributes
    ----------
    tokens : soft tokens [B, M, d], or all that comes before the answer [B, P, d], embedded
    past : keys and values [B, g, M, e] of every layer before all tokens; None: there are none
    """

    tokens: Tensor
    past: KeyValues | None = None


@dataclass
class Rows:
    """Positions that are read: the last layer computes queries and MLP for these alone.

    `positions` is a slice of all rows alike, or indices [B, R].
    """

    positions: slice | Tensor

    def of(self, x: Tensor) -> Tensor:
        """x [B, S, d] -> [B, R, d], without gaps: with them, B products would each copy the weights."""
        if isinstance(self.positions, slice):
            return x[:, self.positions].contiguous()
        return x.gather(1, self.positions.unsqueeze(-1).expand(-1, -1, x.shape[-1]))


@dataclass(frozen=True)
class AttentionContext:
    """Where the tokens of a pass are, and what they see.

    Attributes
    ----------
    past_key_values : of all positions before the tokens; None: the first token is the first position
    mask : which keys they see; None: all before them
    position_ids : [S] or [B, S] of each token, where they do not go on from `past_key_values`
    """

    past_key_values: KeyValues | None = None
    mask: Mask | None = None
    position_ids: Tensor | None = None

    def allowed(
        self,
        length: int,
        device: torch.device,
        asked: slice | Tensor | None = None,
        window: int | None = None,
    ) -> Allowed:
        """What the queries at `asked` (None: all) of `length` tokens may see: the last `window` keys."""
        mask = self.mask if self.mask is not None else Mask(past=keys_in(self.past_key_values))
        return mask.allowed(length, device, asked, window)


ALONE = AttentionContext()
"""Tokens with nothing before them."""


@dataclass(frozen=True)
class LayerContext:
    """What one layer is given in addition to its input.

    Attributes
    ----------
    position_embeddings : cosines and sines, [S, e] or [B, S, e] each; None: the layer turns nothing
    allowed : keys that the queries may see
    past_key_value : keys and values [1 or B, g, T, e] before those of the pass
    rows : what the layer is computed for; None: everything
    lora : additions to its matrices
    """

    position_embeddings: tuple[Tensor, Tensor] | None
    allowed: Allowed
    past_key_value: tuple[Tensor, Tensor] | None = None
    rows: Rows | None = None
    lora: Any = None
