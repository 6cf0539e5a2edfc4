"""A digest that identifies the data of a training."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import torch

from perfsweep.workloads.training.batches import rows_of, tensors
from perfsweep.workloads.training.parts import Parts
from perfsweep.workloads.training.sources import first_batches, fixed_draws, is_stream, length_of

DIGESTED_ROWS = 256
"""Rows that the digest reads: all rows may not fit into memory."""


def data_digest(parts: Parts) -> str:
    """SHA-256 of the first rows' values, whatever type a level stores them in, and of the number of rows.

    Streams and loaders have no number of rows; the first batches of a loader are read.
    """
    sha = hashlib.sha256()
    if parts.loader is None and not is_stream(parts.data):
        sha.update(str(length_of(parts.data, "the data set")).encode())
    with fixed_draws(0):
        for batch in _first_rows(parts):
            for tensor in tensors(batch):
                wide = tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)
                sha.update((wide + 0.0).numpy().tobytes())  # + 0.0 turns -0.0 into 0.0
    return sha.hexdigest()


def _first_rows(parts: Parts) -> Iterator[Any]:
    rows = 0
    for batch in first_batches(parts, 1, 0):
        yield batch
        rows += rows_of(batch)
        if rows >= DIGESTED_ROWS:
            return
