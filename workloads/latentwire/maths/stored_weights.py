"""Frozen matrices as stored."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn


class Weight(nn.Module):
    """A frozen matrix [out, in] with an optional bias, in whatever type it is stored."""

    def __init__(self, matrix: Tensor, bias: Tensor | None = None) -> None:
        super().__init__()
        self.matrix = nn.Parameter(matrix, requires_grad=False)
        self.bias = None if bias is None else nn.Parameter(bias, requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        """x [.., in] -> [.., out]"""
        return F.linear(x, self.matrix, self.bias)
