"""Functions of a gated MLP's gate, under the names that models' configurations have for them."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor

_TANH = functools.partial(F.gelu, approximate="tanh")

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_new": _TANH,
    "gelu_pytorch_tanh": _TANH,
    "relu": F.relu,
}
SYNONYMS = {"swish": "silu"}
