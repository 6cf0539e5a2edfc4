"""The file format: activations and labels in, probes out. A file's mistakes are named with the remedy."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.probe1d.data.problem import Csr, Labels, ProbeData, clean_csr

FORMAT = (
    "indptr int64 [N+1], indices int32 [nnz], values float32 [nnz], shape (N, L), and labels [N] or"
    " labels_multihot [N, C]"
)
LARGEST = 1e15
MOST_CLASSES = 10**6
NAMES = ("indptr", "indices", "values", "shape", "labels", "labels_multihot")


def load(path: Path, classes: int | None = None) -> ProbeData:
    """Read a problem; arrays with the suffix _val are held-out rows.

    Unsorted columns, duplicates (added up) and explicit zeros (dropped) are legal. `classes` widens the grid
    beyond the largest label in the file.

    Raises
    ------
    ConfigError
        The file cannot be read, or an array is missing, unknown, misshaped, of a wrong type or out of range.
    """
    return problem(f"workload.data={path}", path.name, _read(path), classes)


def problem(
    where: object, name: str, arrays: Mapping[str, np.ndarray], classes: int | None = None
) -> ProbeData:
    """A problem from the arrays of the format, which `where` names in messages.

    Raises
    ------
    ConfigError
        An array is missing, unknown, misshaped, of a wrong type or out of range.
    """
    known = [f"{one}{suffix}" for suffix in ("", "_val") for one in NAMES]
    if foreign := sorted(set(arrays) - set(known)):
        raise ConfigError(
            f"{where}: array {foreign[0]} is unknown; leave it out, or call it one of: {', '.join(known)}"
        )
    x, labels = _part(where, arrays, "", classes, None)
    if not any(one.endswith("_val") for one in arrays):
        return ProbeData(name, x, labels)
    x_val, labels_val = _part(where, arrays, "_val", labels.classes, x.latents)
    return ProbeData(name, x, labels, x_val, labels_val)


def _read(path: Path) -> dict[str, np.ndarray]:
    if not path.is_file():
        raise ConfigError(
            f"workload.data={path}: there is no such file; give a preset name or the path of an .npz file"
        )
    try:
        with np.load(path, allow_pickle=False) as stored:
            return {name: stored[name] for name in stored.files}
    except Exception as error:  # a damaged archive ends in whatever numpy's and zip's parsers meet
        said = str(error).split(". ")[0]  # without numpy's advice to unpickle what is foreign
        raise ConfigError(
            f"workload.data={path}: cannot be read as .npz ({said}); write it with numpy.savez, arrays:"
            f" {FORMAT}"
        ) from error


def _part(
    where: object, arrays: Mapping[str, np.ndarray], suffix: str, classes: int | None, latents: int | None
) -> tuple[Csr, Labels]:
    missing = [name + suffix for name in ("indptr", "indices", "values") if name + suffix not in arrays]
    if missing:
        raise ConfigError(f"{where}: array {missing[0]} is missing; the format is {FORMAT}")
    indptr, indices, values = (arrays[name + suffix] for name in ("indptr", "indices", "values"))
    rows, width = _shape(where, arrays, suffix, indptr, latents)
    _check_types(where, suffix, indptr, indices, values)
    _check_pointers(where, suffix, indptr, indices, values, rows)
    _check_entries(where, suffix, indptr, indices, values, width)
    # Half precision has no sparse sums in scipy; wider values keep their digits until they are placed.
    x = clean_csr(indptr, indices, values.astype(np.promote_types(values.dtype, np.float32)), width)
    _check_sizes(where, suffix, x)
    return x, _labels(where, arrays, suffix, rows, classes)


def _shape(
    where: object, arrays: Mapping[str, np.ndarray], suffix: str, indptr: np.ndarray, latents: int | None
) -> tuple[int, int]:
    name = f"shape{suffix}"
    if name not in arrays:
        if latents is None:
            raise ConfigError(f"{where}: array {name} is missing; give it as (rows, latents)")
        return indptr.size - 1, latents
    shape = arrays[name]
    if shape.shape != (2,) or shape.dtype.kind not in "iu":
        raise ConfigError(
            f"{where}: {name} has shape {shape.shape} and type {shape.dtype}; give two integers (rows,"
            " latents)"
        )
    rows, width = int(shape[0]), int(shape[1])
    if rows < 1 or width < 1:
        raise ConfigError(f"{where}: {name} is ({rows}, {width}); at least one row and one latent are needed")
    if latents is not None and width != latents:
        raise ConfigError(
            f"{where}: {name} has {width} latents and shape has {latents}; both parts need the same latents"
        )
    return rows, width


def _check_types(
    where: object, suffix: str, indptr: np.ndarray, indices: np.ndarray, values: np.ndarray
) -> None:
    for name, array, kinds, wanted in (
        ("indptr", indptr, "iu", "int64"),
        ("indices", indices, "iu", "int32"),
        ("values", values, "f", "float32"),
    ):
        if array.ndim != 1 or array.dtype.kind not in kinds:
            raise ConfigError(
                f"{where}: {name}{suffix} is {array.dtype} with {array.ndim} dimensions; store it as one row"
                f" of {wanted}"
            )


def _check_pointers(
    where: object, suffix: str, indptr: np.ndarray, indices: np.ndarray, values: np.ndarray, rows: int
) -> None:
    if indptr.size != rows + 1:
        raise ConfigError(
            f"{where}: indptr{suffix} has {indptr.size} entries for {rows} rows; it needs rows + 1"
        )
    if indices.size != values.size:
        raise ConfigError(
            f"{where}: indices{suffix} has {indices.size} entries and values{suffix} {values.size}; make them"
            " equal"
        )
    steps = np.diff(indptr.astype(np.int64))
    if indptr[0] != 0 or indptr[-1] != indices.size or (steps < 0).any():
        row = int(np.argmax(steps < 0)) if (steps < 0).any() else 0 if indptr[0] != 0 else rows
        raise ConfigError(
            f"{where}: indptr{suffix} is wrong at row {row}; it must rise from 0 to the number of values,"
            f" {indices.size}"
        )


def _check_entries(
    where: object, suffix: str, indptr: np.ndarray, indices: np.ndarray, values: np.ndarray, latents: int
) -> None:
    bad = ~np.isfinite(values)
    if bad.any():
        event = int(np.argmax(bad))
        row = int(np.searchsorted(indptr, event, side="right")) - 1
        raise ConfigError(
            f"{where}: values{suffix} holds {values[event]} in row {row} (latent {indices[event]}); remove or"
            " replace it"
        )
    bad = (indices < 0) | (indices >= latents)
    if bad.any():
        event = int(np.argmax(bad))
        row = int(np.searchsorted(indptr, event, side="right")) - 1
        raise ConfigError(
            f"{where}: indices{suffix} holds {indices[event]} in row {row}; latents go from 0 to"
            f" {latents - 1} (see shape)"
        )


def _check_sizes(where: object, suffix: str, x: Csr) -> None:
    """Squares of a latent's values, and their sums, must be numbers of float32."""
    sizes = torch.zeros(x.latents, dtype=x.values.dtype).scatter_reduce(0, x.indices, x.values.abs(), "amax")
    bad = (sizes > LARGEST) | ((sizes > 0) & (sizes < 1 / LARGEST))
    if bad.any():
        latent = int(bad.nonzero()[0])
        raise ConfigError(
            f"{where}: values{suffix} of latent {latent} reach {float(sizes[latent]):.3g}; scale that latent"
            f" to between {1 / LARGEST:g} and {LARGEST:g}"
        )


def _labels(
    where: object, arrays: Mapping[str, np.ndarray], suffix: str, rows: int, classes: int | None
) -> Labels:
    one, many = f"labels{suffix}", f"labels_multihot{suffix}"
    if (one in arrays) == (many in arrays):
        found = "both are there" if one in arrays else "neither is there"
        raise ConfigError(f"{where}: give {one} [N] or {many} [N, C]; {found}")
    if many in arrays:
        return _multihot(where, arrays[many], many, rows, classes)
    return _class_numbers(where, arrays[one], one, rows, classes)


def _class_numbers(where: object, ids: np.ndarray, name: str, rows: int, classes: int | None) -> Labels:
    if ids.ndim != 1 or ids.dtype.kind not in "iu" or ids.size != rows:
        raise ConfigError(
            f"{where}: {name} is {ids.dtype} of shape {ids.shape}; give one class number for each of {rows}"
            " rows"
        )
    known = classes or max(int(ids.max()) + 1, 1)
    if known > MOST_CLASSES:
        raise ConfigError(
            f"{where}: {name} holds class {known - 1}, and every class from 0 on gets probes; number at most"
            f" {MOST_CLASSES} classes from 0"
        )
    bad = (ids < 0) | (ids >= known)
    if bad.any():
        row = int(np.argmax(bad))
        raise ConfigError(
            f"{where}: {name} holds class {ids[row]} in row {row}; classes go from 0 to {known - 1}"
            " (workload.classes)"
        )
    return Labels(known, ids=torch.from_numpy(ids.astype(np.int64)))


def _multihot(where: object, multi: np.ndarray, name: str, rows: int, classes: int | None) -> Labels:
    if multi.ndim != 2 or multi.shape[0] != rows or not multi.shape[1] or multi.dtype.kind not in "biu":
        raise ConfigError(
            f"{where}: {name} is {multi.dtype} of shape {multi.shape}; give booleans of shape ({rows},"
            " classes)"
        )
    if multi.dtype.kind != "b" and ((multi != 0) & (multi != 1)).any():
        row = int(np.argmax(((multi != 0) & (multi != 1)).any(1)))
        raise ConfigError(f"{where}: {name} holds a value other than 0 and 1 in row {row}; store booleans")
    if classes is not None and classes != multi.shape[1]:
        raise ConfigError(
            f"{where}: {name} has {multi.shape[1]} classes and workload.classes says {classes}; leave that"
            " out"
        )
    return Labels(multi.shape[1], multi=torch.from_numpy(multi.astype(bool)))


PROBES = {
    "classes": (np.int64, "[C] class of each column"),
    "coef": (np.float64, "[L, C] w of the probe sigmoid(intercept + coef x)"),
    "intercept": (np.float64, "[L, C] b"),
    "reason": (
        np.uint8,
        "[L, C] how the pair ended: 0 converged, 1 dead latent, 2 frozen after retries, 3 not converged,"
        " 4 converged with a penalty that costs more than 2e-6 of loss",
    ),
    "gmax": (np.float32, "[L, C] largest component of the scaled gradient of the mean loss"),
    "evals": (np.uint16, "[L, C] evaluations of the pair"),
    "loss": (np.float32, "[L, C] mean negative log-likelihood on the training rows"),
    "loss_val": (np.float32, "[L, C] the same on the held-out rows"),
    "tp": (np.int64, "[L, C] training rows with the class and a probability above 1/2"),
    "fp": (np.int64, "[L, C] rows without the class and a probability above 1/2"),
    "tn": (np.int64, "[L, C] rows without the class, probability at most 1/2"),
    "fn": (np.int64, "[L, C] rows with the class, probability at most 1/2"),
}
"""Arrays of a file of probes: type, shape and meaning. Losses and counts are there with workload.metrics."""


def save_probes(path: Path, results: Mapping[str, np.ndarray]) -> None:
    """Write the results of a job, each in its documented type, whole or not at all.

    Raises
    ------
    ConfigError
        There is a file already, or none can be written there.
    """
    arrays = {name: np.asarray(value, dtype=PROBES[name][0]) for name, value in results.items()}
    if path.exists():
        raise ConfigError(f"{path} exists; choose another name or remove it")
    part = path.with_name(path.name + ".part.npz")
    try:
        np.savez(part, **arrays)  # pyright: ignore[reportArgumentType]
        part.replace(path)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written ({error}); choose a folder that can be") from error


def arrays_of(x: Any, labels: Any, suffix: str) -> dict[str, np.ndarray]:
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
