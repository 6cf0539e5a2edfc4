"""The file format: activations and labels in, probes out. A file's mistakes are named with the remedy."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch

from workloads.errors import ConfigError
from workloads.probe1d.data.problem import Csr, Labels, ProbeData, clean_csr

FORMAT = (
    "indptr int64 [N+1], indices int32 [nnz], values float32 [nnz], shape (N, L), and labels [N] or"
    " labels_multihot [N, C]"
)


def load(path: Path, classes: int | None = None) -> ProbeData:
    """Read a problem; arrays with the suffix _val are held-out rows.

    Unsorted columns, duplicates (added up) and explicit zeros (dropped) are legal. `classes` widens the grid
    beyond the largest label in the file.

    Raises
    ------
    ConfigError
        The file cannot be read, or an array is missing, misshaped, of a wrong type or out of range.
    """
    arrays = _read(path)
    x, labels = _part(path, arrays, "", classes, None)
    if "indptr_val" not in arrays:
        return ProbeData(path.name, x, labels)
    x_val, labels_val = _part(path, arrays, "_val", labels.classes, x.latents)
    return ProbeData(path.name, x, labels, x_val, labels_val)


def _read(path: Path) -> dict[str, np.ndarray]:
    if not path.is_file():
        raise ConfigError(
            f"workload.data={path}: there is no such file; give a preset name or the path of an .npz file"
        )
    try:
        with np.load(path, allow_pickle=False) as stored:
            return {name: stored[name] for name in stored.files}
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile) as error:
        raise ConfigError(
            f"{path}: cannot be read as .npz ({error}); write it with numpy.savez, arrays: {FORMAT}"
        ) from error


def _part(
    path: Path, arrays: Mapping[str, np.ndarray], suffix: str, classes: int | None, latents: int | None
) -> tuple[Csr, Labels]:
    missing = [name + suffix for name in ("indptr", "indices", "values") if name + suffix not in arrays]
    if missing:
        raise ConfigError(f"{path}: array {missing[0]} is missing; the format is {FORMAT}")
    indptr, indices, values = (arrays[name + suffix] for name in ("indptr", "indices", "values"))
    rows, width = _shape(path, arrays, suffix, indptr, latents)
    _check_types(path, suffix, indptr, indices, values)
    _check_pointers(path, suffix, indptr, indices, values, rows)
    _check_entries(path, suffix, indptr, indices, values, width)
    x = clean_csr(indptr, indices, values.astype(np.float32), width)
    return x, _labels(path, arrays, suffix, rows, classes)


def _shape(
    path: Path, arrays: Mapping[str, np.ndarray], suffix: str, indptr: np.ndarray, latents: int | None
) -> tuple[int, int]:
    name = f"shape{suffix}"
    if name not in arrays:
        if latents is None:
            raise ConfigError(f"{path}: array {name} is missing; give it as (rows, latents)")
        return indptr.size - 1, latents
    shape = arrays[name]
    if shape.shape != (2,) or shape.dtype.kind not in "iu":
        raise ConfigError(
            f"{path}: {name} has shape {shape.shape} and type {shape.dtype}; give two integers (rows,"
            " latents)"
        )
    rows, width = int(shape[0]), int(shape[1])
    if rows < 1 or width < 1:
        raise ConfigError(f"{path}: {name} is ({rows}, {width}); at least one row and one latent are needed")
    if latents is not None and width != latents:
        raise ConfigError(
            f"{path}: {name} has {width} latents and shape has {latents}; both parts need the same latents"
        )
    return rows, width


def _check_types(
    path: Path, suffix: str, indptr: np.ndarray, indices: np.ndarray, values: np.ndarray
) -> None:
    for name, array, kinds, wanted in (
        ("indptr", indptr, "iu", "int64"),
        ("indices", indices, "iu", "int32"),
        ("values", values, "f", "float32"),
    ):
        if array.ndim != 1 or array.dtype.kind not in kinds:
            raise ConfigError(
                f"{path}: {name}{suffix} is {array.dtype} with {array.ndim} dimensions; store it as one row"
                f" of {wanted}"
            )


def _check_pointers(
    path: Path, suffix: str, indptr: np.ndarray, indices: np.ndarray, values: np.ndarray, rows: int
) -> None:
    if indptr.size != rows + 1:
        raise ConfigError(
            f"{path}: indptr{suffix} has {indptr.size} entries for {rows} rows; it needs rows + 1"
        )
    if indices.size != values.size:
        raise ConfigError(
            f"{path}: indices{suffix} has {indices.size} entries and values{suffix} {values.size}; make them"
            " equal"
        )
    steps = np.diff(indptr.astype(np.int64))
    if indptr[0] != 0 or indptr[-1] != indices.size or (steps < 0).any():
        row = int(np.argmax(steps < 0)) if (steps < 0).any() else 0 if indptr[0] != 0 else rows
        raise ConfigError(
            f"{path}: indptr{suffix} is wrong at row {row}; it must rise from 0 to the number of values,"
            f" {indices.size}"
        )


def _check_entries(
    path: Path, suffix: str, indptr: np.ndarray, indices: np.ndarray, values: np.ndarray, latents: int
) -> None:
    bad = ~np.isfinite(values)
    if bad.any():
        event = int(np.argmax(bad))
        row = int(np.searchsorted(indptr, event, side="right")) - 1
        raise ConfigError(
            f"{path}: values{suffix} holds {values[event]} in row {row} (latent {indices[event]}); remove or"
            " replace it"
        )
    bad = (indices < 0) | (indices >= latents)
    if bad.any():
        event = int(np.argmax(bad))
        row = int(np.searchsorted(indptr, event, side="right")) - 1
        raise ConfigError(
            f"{path}: indices{suffix} holds {indices[event]} in row {row}; latents go from 0 to {latents - 1}"
            " (see shape)"
        )


def _labels(
    path: Path, arrays: Mapping[str, np.ndarray], suffix: str, rows: int, classes: int | None
) -> Labels:
    one, many = f"labels{suffix}", f"labels_multihot{suffix}"
    if (one in arrays) == (many in arrays):
        found = "both are there" if one in arrays else "neither is there"
        raise ConfigError(f"{path}: give {one} [N] or {many} [N, C]; {found}")
    if many in arrays:
        return _multihot(path, arrays[many], many, rows, classes)
    return _class_numbers(path, arrays[one], one, rows, classes)


def _class_numbers(path: Path, ids: np.ndarray, name: str, rows: int, classes: int | None) -> Labels:
    if ids.ndim != 1 or ids.dtype.kind not in "iu" or ids.size != rows:
        raise ConfigError(
            f"{path}: {name} is {ids.dtype} of shape {ids.shape}; give one class number for each of {rows}"
            " rows"
        )
    known = classes or max(int(ids.max()) + 1, 1)
    bad = (ids < 0) | (ids >= known)
    if bad.any():
        row = int(np.argmax(bad))
        raise ConfigError(
            f"{path}: {name} holds class {ids[row]} in row {row}; classes go from 0 to {known - 1}"
            " (workload.classes)"
        )
    return Labels(known, ids=torch.from_numpy(ids.astype(np.int64)))


def _multihot(path: Path, multi: np.ndarray, name: str, rows: int, classes: int | None) -> Labels:
    if multi.ndim != 2 or multi.shape[0] != rows or multi.dtype.kind not in "biu":
        raise ConfigError(
            f"{path}: {name} is {multi.dtype} of shape {multi.shape}; give booleans of shape ({rows},"
            " classes)"
        )
    if multi.dtype.kind != "b" and ((multi != 0) & (multi != 1)).any():
        row = int(np.argmax(((multi != 0) & (multi != 1)).any(1)))
        raise ConfigError(f"{path}: {name} holds a value other than 0 and 1 in row {row}; store booleans")
    if classes is not None and classes != multi.shape[1]:
        raise ConfigError(
            f"{path}: {name} has {multi.shape[1]} classes and workload.classes says {classes}; leave that out"
        )
    return Labels(multi.shape[1], multi=torch.from_numpy(multi.astype(bool)))


def save_problem(path: Path, data: ProbeData) -> None:
    """Write a problem in the documented format."""
    arrays: dict[str, np.ndarray] = {}
    for suffix, x, labels in (("", data.x, data.labels), ("_val", data.x_val, data.labels_val)):
        if x is None or labels is None:
            continue
        arrays[f"indptr{suffix}"] = x.indptr.cpu().numpy()
        arrays[f"indices{suffix}"] = x.indices.cpu().numpy().astype(np.int32)
        arrays[f"values{suffix}"] = x.values.cpu().numpy().astype(np.float32)
        arrays[f"shape{suffix}"] = np.array([x.rows, x.latents])
        if labels.ids is not None:
            arrays[f"labels{suffix}"] = labels.ids.cpu().numpy()
        elif labels.multi is not None:
            arrays[f"labels_multihot{suffix}"] = labels.multi.cpu().numpy()
    np.savez(path, **arrays)  # pyright: ignore[reportArgumentType]


OUTPUT_TYPES = {
    "coef": np.float32,
    "intercept": np.float32,
    "evals": np.uint16,
    "gmax": np.float32,
    "reason": np.uint8,
    "loss": np.float32,
    "loss_val": np.float32,
    "tp": np.int64,
    "fp": np.int64,
    "tn": np.int64,
    "fn": np.int64,
}


def save_probes(path: Path, results: Mapping[str, np.ndarray]) -> None:
    """Write the results of a job, each [L, C] in its documented type, whole or not at all."""
    arrays = {name: np.asarray(value, dtype=OUTPUT_TYPES.get(name)) for name, value in results.items()}
    part = path.with_name(path.name + ".part.npz")
    np.savez(part, **arrays)  # pyright: ignore[reportArgumentType]
    part.replace(path)
