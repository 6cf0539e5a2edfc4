"""The next batch is copied to the device while this batch is computed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import torch
from torch import Tensor

T = TypeVar("T")


def ahead(
    batches: Iterator[T], device: torch.device, counts: Counter[str], tensors: Callable[[T], Iterable[Tensor]]
) -> Iterator[T]:
    """Fetch and copy each batch on a separate stream while the previous batch is computed.

    Parameters
    ----------
    batches : copies each batch to `device` on request
    counts : counts the witness ``prefetched_batches``
    tensors : gives all tensors of a batch
    """
    copies = torch.cuda.Stream(device)
    ready = _fetched_on(copies, batches)
    while True:
        computing = torch.cuda.current_stream(device)
        computing.wait_stream(copies)
        current = ready
        for tensor in tensors(current):
            # Without this the other stream could reuse the tensor's memory while it is read here.
            tensor.record_stream(computing)
        ready = _fetched_on(copies, batches)
        counts["prefetched_batches"] += 1
        yield current


def _fetched_on(stream: torch.cuda.Stream, batches: Iterator[T]) -> T:
    with torch.cuda.stream(stream):
        return next(batches)
