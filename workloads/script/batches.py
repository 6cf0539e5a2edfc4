"""What a batch holds, whatever its shape: its tensors, and how many examples it has."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator, Mapping, Sized
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

DIGESTED_ROWS = 4
"""Rows of the first batches that identify the data: few, so that arms with smaller batches have them too."""

DEEPEST = 4
"""Objects within objects whose attributes are looked at."""


def tensors_of(value: Any, depth: int = DEEPEST) -> Iterator[Tensor]:
    """All tensors in nested tuples, lists and mappings, and in the attributes of objects."""
    if isinstance(value, Tensor):
        yield value
    else:
        for inner, deeper in _parts(value, depth):
            yield from tensors_of(inner, deeper)


def _parts(value: Any, depth: int) -> Iterator[tuple[Any, int]]:
    """What a value holds, with the depth that is left for its attributes."""
    if isinstance(value, Mapping) or (hasattr(value, "data") and isinstance(value.data, Mapping)):
        inner: Mapping[Any, Any] = value if isinstance(value, Mapping) else value.data
        yield from ((inner[name], depth) for name in inner)
    elif isinstance(value, (tuple, list)):
        yield from ((one, depth) for one in value)
    elif depth:
        yield from ((one, depth - 1) for one in _attributes(value))


def _attributes(value: Any) -> list[Any]:
    """What an object holds in attributes; nothing of classes, modules of either kind, and plain values."""
    if isinstance(value, (type, ModuleType, nn.Module)):
        return []
    if dataclasses.is_dataclass(value):
        return [getattr(value, field.name, None) for field in dataclasses.fields(value)]
    return list(getattr(value, "__dict__", {}).values())


def rows_of(batch: Any, asked: int | None = None) -> int:
    """Examples in a batch: what it says itself, else by its lengths.

    Parameters
    ----------
    asked : examples of a whole batch, as its loader was asked for; None: the loader does not say
    """
    graphs = getattr(batch, "num_graphs", None)
    if isinstance(graphs, int):  # its tensors hold a row for each node, or each edge
        return graphs
    first = next((len(tensor) for tensor in tensors_of(batch) if tensor.dim()), None)
    # A loader that is asked for single items often has a data set that gives whole batches.
    if asked is not None and asked > 1:
        return asked if first is None or first > asked or asked in _lengths(batch) else first
    return first if first is not None else _own_length(batch)


def _lengths(value: Any, depth: int = DEEPEST) -> Iterator[int]:
    """Lengths of all tensors and sequences in a batch."""
    if isinstance(value, Tensor):
        yield from (len(value),) if value.dim() else ()
        return
    if isinstance(value, (tuple, list)):
        yield len(value)
    for inner, deeper in _parts(value, depth):
        yield from _lengths(inner, deeper)


def _own_length(batch: Any) -> int:
    """The length of what holds no tensor, such as a list of rows that are no tensors yet."""
    return len(batch) if isinstance(batch, Sized) and not isinstance(batch, (str, bytes)) else 0


def asked_of(batches: Any) -> int | None:
    """Examples of a whole batch of an iterator over a loader; None where the loader does not say."""
    asked = getattr(getattr(batches, "_index_sampler", None), "batch_size", None)
    return asked if isinstance(asked, int) else None


def length_of(batches: Any) -> int:
    """Batches of an epoch; 0 for a stream."""
    try:
        return len(batches)
    except TypeError:
        return 0


class Rows:
    """Digest of the first rows of batches, however they are cut."""

    def __init__(self) -> None:
        self._seen = 0
        self._sha = hashlib.sha256()

    @property
    def digest(self) -> str:
        """So far; empty where there were no rows."""
        return self._sha.hexdigest() if self._seen else ""

    def add(self, batch: Any) -> None:
        """Take in the rows of a batch that are still wanted."""
        leaves = [leaf for leaf in tensors_of(batch) if leaf.dim()]
        rows = min((len(leaf) for leaf in leaves), default=0)
        for row in range(min(rows, DIGESTED_ROWS - self._seen)):
            for leaf in leaves:
                self._sha.update(_bytes(leaf[row]))
        self._seen = min(DIGESTED_ROWS, self._seen + rows)


def dense(tensor: Tensor) -> Tensor:
    """With all of its zeros: few operators take sparse tensors, such as a matrix of edges or a gradient."""
    return tensor if tensor.layout == torch.strided else tensor.to_dense()


def _bytes(tensor: Tensor) -> bytes:
    whole = dense(tensor.detach()).cpu()
    if not whole.dtype.is_complex:
        whole = whole.to(torch.float64) + 0.0  # integers know no negative zero
    return whole.contiguous().numpy().tobytes()
