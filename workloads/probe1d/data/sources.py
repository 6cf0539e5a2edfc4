"""Where a job's activations come from: a generator preset, digits, a dictionary trained here, or a file."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.probe1d.config import DICTIONARIES, DIGITS, GENERATED, sources
from perfsweep.workloads.probe1d.data import dictionary, generator, npz
from perfsweep.workloads.probe1d.data.problem import Csr, Labels, ProbeData, clean_csr

STORAGE = {"float32": torch.float32, "float16": torch.float16, "float64": torch.float64}


def load_data(source: str, seed: int, device: str, cache_dir: Path, classes: int | None = None) -> ProbeData:
    """The problem called `source`: a preset, or the path of an .npz file.

    Raises
    ------
    ConfigError
        The name is unknown or the file is not in the documented format.
    """
    if source in GENERATED:
        return generator.generate(GENERATED[source], seed, device, source)
    if source in DIGITS:
        return digits(DIGITS[source], source)
    if source in DICTIONARIES:
        return dictionary.dictionary_data(source, cache_dir)
    if source.endswith(".npz"):
        return npz.load(Path(source), classes)
    raise ConfigError(
        f"workload.data={source} is no preset and no .npz file; choose from: {', '.join(sources())}, or a"
        " path"
    )


def digits(divisor: float, name: str) -> ProbeData:
    """scikit-learn's 1797 digits, 64 pixels as latents: dense, to stress accumulation. All rows train."""
    from scipy import sparse
    from sklearn.datasets import load_digits

    stored: Any = load_digits()  # its stubs promise a tuple
    matrix: Any = sparse.csr_matrix((stored.data / divisor).astype(np.float32))
    x = clean_csr(matrix.indptr, matrix.indices, matrix.data, matrix.shape[1])
    return ProbeData(name, x, Labels(10, ids=torch.from_numpy(stored.target.astype(np.uint8))))


def requested_classes(source: str, classes: int) -> int:
    """How many leading classes of a source are asked for."""
    used = GENERATED[source].used if source in GENERATED else None
    return used or classes


def sampled_classes(classes: int, width: int, number: int | None, seed: int) -> Tensor:
    """Classes of the grid: all, or `number` blocks of `width`, one drawn from each equal stratum.

    The rule looks at nothing but sizes and seed, so that every arm of a comparison solves the same pairs.
    """
    blocks = torch.arange(classes).split(width)
    if number is None or number >= len(blocks):
        return torch.arange(classes)
    generator = torch.Generator().manual_seed(seed)
    edges = [round(i * len(blocks) / number) for i in range(number + 1)]
    picks = [int(torch.randint(low, high, (1,), generator=generator)) for low, high in pairwise(edges)]
    return torch.cat([blocks[pick] for pick in picks])


def place(data: ProbeData, device: str, storage: str) -> ProbeData:
    """The data on the device, values in the storage type.

    Raises
    ------
    ConfigError
        Unknown storage type, or a value that it cannot hold.
    """
    if storage not in STORAGE:
        raise ConfigError(f"workload.storage_dtype={storage} is unknown; choose from: {', '.join(STORAGE)}")

    def moved(x: Csr | None) -> Csr | None:
        return None if x is None else _stored(x, device, storage)

    x = moved(data.x)
    assert x is not None
    labels_val = None if data.labels_val is None else data.labels_val.to(device)
    return ProbeData(data.name, x, data.labels.to(device), moved(data.x_val), labels_val)


def _stored(x: Csr, device: str, storage: str) -> Csr:
    moved = x.to(device, STORAGE[storage])
    if not torch.isfinite(moved.values).all():
        event = int((~torch.isfinite(moved.values)).nonzero()[0])
        raise ConfigError(
            f"workload.storage_dtype={storage} cannot hold {float(x.values[event])} (latent"
            f" {int(x.indices[event])}); choose a wider type or scale that latent"
        )
    return moved
