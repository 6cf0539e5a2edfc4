"""Bytes that operators read and write, by their operands' sizes: the least that a cold cache would move.

Views move nothing. An operator reads each tensor it is given once and writes each it returns once, an
expanded tensor only as far as it is stored. What gathers or scatters touches as much of its table as it
selects. Fusing operators, as compiled code does, moves less, and caches that hold what was just written do
too: the count is of the program, not of the chip.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

_GATHERS = frozenset({"index", "index_select", "gather", "embedding", "take", "take_along_dim"})
_SCATTERS = frozenset(
    {
        "index_put",
        "index_put_",
        "_index_put_impl_",
        "scatter",
        "scatter_",
        "scatter_add",
        "scatter_add_",
        "index_add",
    }
    | {
        "index_add_",
        "index_copy",
        "index_copy_",
        "scatter_reduce",
        "scatter_reduce_",
        "embedding_dense_backward",
    }
)
_ALLOCATES = frozenset(
    {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "empty_permuted", "set_"}
)
_OVERWRITES = frozenset(
    {"copy_", "fill_", "zero_", "normal_", "uniform_", "random_", "bernoulli_", "exponential_"}
)


def moved(name: str, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> int:
    """Bytes that one call of the operator `name` reads and writes."""
    if name in _ALLOCATES:
        return 0
    given = [value for keyword, value in kwargs.items() if keyword != "out"]
    inputs = list(_tensors([*args[name in _OVERWRITES :], *given]))
    outputs = list(_tensors([out]))
    if name in _GATHERS and inputs:
        table, others = inputs[0], inputs[1:]
        selected = sum(map(stored, outputs))
        return min(stored(table), selected) + sum(map(stored, others)) + selected
    if name in _SCATTERS and inputs:
        return sum(map(stored, inputs[1:])) + 2 * min(
            stored(inputs[0]), max(map(stored, inputs[1:]), default=0)
        )
    return sum(map(stored, inputs)) + sum(map(stored, outputs))


def stored(tensor: torch.Tensor) -> int:
    """Bytes of a tensor's elements: of an expanded one once, of a sparse one its values and indices."""
    if tensor.layout is torch.strided:
        distinct = 1
        for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
            distinct *= size if stride or not size else 1
        return distinct * tensor.element_size()
    if tensor.layout is torch.sparse_coo:
        return stored(tensor._values()) + stored(tensor._indices())
    if tensor.layout is torch.sparse_csr:
        return sum(map(stored, (tensor.values(), tensor.crow_indices(), tensor.col_indices())))
    return 0


def _tensors(values: Sequence[Any]) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)
