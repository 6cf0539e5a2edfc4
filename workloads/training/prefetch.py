"""The next batch travels while this one is computed."""

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
    """Each batch is fetched and copied on a stream of its own while the one before it is computed.

    Parameters
    ----------
    batches : copies each batch to `device` when it is asked for it
    counts : of the witness ``prefetched_batches``
    tensors : all tensors of a batch
    """
    copies = torch.cuda.Stream(device)
    ready = _fetched_on(copies, batches)
    while True:
        computing = torch.cuda.current_stream(device)
        computing.wait_stream(copies)
        current = ready
        for tensor in tensors(current):
            # Made on the other stream: without this its memory could be reused there while still read here.
            tensor.record_stream(computing)
        ready = _fetched_on(copies, batches)
        counts["prefetched_batches"] += 1
        yield current


def _fetched_on(stream: torch.cuda.Stream, batches: Iterator[T]) -> T:
    with torch.cuda.stream(stream):
        return next(batches)
