"""The arrays of the file format from activations and labels of any kind that is at hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from perfsweep.workloads.errors import ConfigError


def arrays(x: Any, labels: Any, suffix: str) -> dict[str, np.ndarray]:
    """Activations and labels by their names in a file, with the suffix "" or "_val".

    Raises
    ------
    ConfigError
        Either is of a kind or of a shape that no numbers can be taken from; the message names it.
    """
    matrix = stored_matrix(x, f"x{suffix or '_csr'}")
    csr = matrix.indptr, matrix.indices, matrix.data, np.array(matrix.shape)
    parts = zip(("indptr", "indices", "values", "shape"), csr, strict=True)
    labels = _whole(_numpy(labels), f"labels{suffix}")
    name = "labels_multihot" if labels.ndim == 2 else "labels"
    return {f"{one}{suffix}": array for one, array in (*parts, (name, labels))}


def _numpy(values: Any) -> np.ndarray:
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu()
        values = (values.float() if values.dtype == torch.bfloat16 else values).numpy()
    return np.asarray(values)


def stored_matrix(x: Any, name: str) -> Any:
    """Activations of any kind as a scipy matrix by row, float32 or float64.

    Raises
    ------
    ConfigError
        They are no matrix of numbers; the message calls them `name`.
    """
    from scipy import sparse

    if isinstance(x, torch.Tensor) and x.layout == torch.sparse_csr:
        x = sparse.csr_array(
            (_floats(_numpy(x.values()), name), _numpy(x.col_indices()), _numpy(x.crow_indices())),
            shape=tuple(x.shape),
        )
    if isinstance(x, torch.Tensor):
        x = x.to_dense()
    if not sparse.issparse(x):
        x = _numpy(x)
    if x.ndim != 2 or 0 in x.shape:
        raise ConfigError(
            f"{name}={x.shape}: a matrix has rows and latents. Give (rows, latents), both above 0."
        )
    return sparse.csr_array(_floats(x, name))


def _floats(values: Any, name: str) -> Any:
    """A matrix or its values as float32 or float64, whichever holds every number of its type."""
    kind = values.dtype
    if kind.kind not in "fiub":
        raise ConfigError(f"{name}={kind}: activations are numbers. Give floats, integers or booleans.")
    narrow = kind.itemsize <= 2 or kind == np.float32
    return values.astype(np.float32 if narrow else np.float64)


def _whole(labels: np.ndarray, name: str) -> np.ndarray:
    """Booleans in a row as class numbers 0 and 1, floats as the whole numbers that they are."""
    if labels.dtype.kind == "b" and labels.ndim == 1:
        return labels.astype(np.int64)
    if labels.dtype.kind != "f":
        return labels
    wrong = ~(np.abs(labels) < 2**53) | (labels != np.rint(labels))
    if wrong.any():
        place = tuple(np.argwhere(wrong)[0])
        raise ConfigError(
            f"{name}={labels[place]} in row {place[0] if place else 0}: this is no class number and no flag."
            " Give whole numbers."
        )
    return labels.astype(np.int64)
