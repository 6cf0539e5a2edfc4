"""Probes of one's own activations, without a sweep: the optimised path as a function."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from perfsweep.workloads.api import Levels, NullClock
from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.native import compiler_here
from perfsweep.workloads.probe1d.build import Builder
from perfsweep.workloads.probe1d.choices import Choices
from perfsweep.workloads.probe1d.config import Probe1DConfig
from perfsweep.workloads.probe1d.counters import Counts
from perfsweep.workloads.probe1d.data import npz
from perfsweep.workloads.probe1d.data.problem import SCALED
from perfsweep.workloads.probe1d.data.sources import place
from perfsweep.workloads.probe1d.maths.job import Job, Task
from perfsweep.workloads.probe1d.maths.pass_timing import NoHook
from perfsweep.workloads.probe1d.maths.solution import Reason
from perfsweep.workloads.probe1d.toggles import TOGGLES

OPTIMISED = {
    "solver": "newton",
    "consistent_stop": "scaled",
    "label_free": "on",
    "csc_layout": "on",
    "active_set": "pair",
    "warm_start": "on",
    "tail_steps": "on",
    "qx_stat": "rms_free",
    "confusion_search": "on",
}
"""Levels that `fit_probes` runs, beside the kernel that the machine has; all others at their baselines."""


@dataclass(frozen=True)
class Probes:
    """A probe sigmoid(intercept + coefficient x) for every (latent, class) pair; matrices are [L, C].

    Attributes
    ----------
    coefficients, intercepts : float64
    losses : mean negative log-likelihood on the training rows, float32
    losses_held_out : the same on the held-out rows, None without any
    confusion : `tp`, `fp`, `tn`, `fn`, int64: training rows by class and by a probability above 1/2
    reason : uint8: 0 converged, 1 dead latent (prior alone), 3 not converged, 4 converged to the minimum of
        loss and penalty, where the penalty costs more than 2e-6 of loss
    arrays : everything above and `gmax` and `evals`, by its name in a file of probes
    """

    coefficients: np.ndarray
    intercepts: np.ndarray
    losses: np.ndarray
    losses_held_out: np.ndarray | None
    confusion: dict[str, np.ndarray]
    reason: np.ndarray
    arrays: dict[str, np.ndarray]

    @property
    def converged(self) -> np.ndarray:
        """Pairs whose loss is at its minimum, bool [L, C]; a dead latent's is the prior of the class."""
        return (self.reason == Reason.CONVERGED) | (self.reason == Reason.DEAD)

    def save(self, path: str | Path) -> None:
        """Write all of it to an .npz file, in the types that `data.npz.PROBES` documents.

        Raises
        ------
        ConfigError
            There is a file already, or none can be written there.
        """
        npz.save_probes(Path(path), self.arrays)


def fit_probes(
    x_csr: Any,
    labels: Any,
    *,
    x_val: Any = None,
    labels_val: Any = None,
    classes: int | None = None,
    tol: float = 1e-6,
    ridge: float = SCALED.ridge,
    max_iter: int = 100,
    slab_size: int | str = "all",
    device: str = "cpu",
) -> Probes:
    """Fit a logistic regression of two parameters for every (latent, class) pair of sparse activations.

    Parameters
    ----------
    x_csr : activations [N, L] of floats: a scipy sparse matrix or array, a torch sparse CSR tensor, or a
        dense array
    labels : class numbers [N], or flags [N, C] where a row has any number of classes
    x_val, labels_val : held-out rows, in the same form
    classes : number of classes, where it is more than the largest number says
    tol : on the scaled gradient of the mean loss
    ridge : weight of the penalty, ridge/2 (w spread)^2 with the latent's standard deviation over all rows
    slab_size : classes solved together, "all" or a number: fewer take less memory
    device : "cpu" or "cuda"

    Raises
    ------
    ConfigError
        An argument cannot be used; the message names it and what to do.
    """
    arrays = _arrays(x_csr, labels, "")
    if (x_val is None) != (labels_val is None):
        raise ConfigError("fit_probes: x_val and labels_val belong together; give both or neither")
    if x_val is not None:
        arrays |= _arrays(x_val, labels_val, "_val")
    storage = "float64" if arrays["values"].dtype == np.float64 else "float32"
    config = Probe1DConfig(
        "fit_probes", classes=classes, storage_dtype=storage, tol=tol, ridge=ridge, max_iter=max_iter
    )
    data = place(npz.problem("fit_probes", "fit_probes", arrays, classes), device, config.storage_dtype)
    grid = torch.arange(data.labels.classes, device=device)
    choices = Choices.of(_levels(slab_size, device))
    builder = Builder(choices, config, Counts(), lambda row: None, NoHook(), NullClock.phase)
    job = Job(Task(data, grid, config, builder, slab_size, NoHook(), NullClock.phase), None)
    for _ in job.passes():
        continue
    return _probes({"classes": grid.cpu().numpy(), **job.by_name()})


def _levels(slab_size: int | str, device: str) -> Levels:
    if slab_size != "all" and not (isinstance(slab_size, int) and slab_size >= 1):
        raise ConfigError(
            f'fit_probes: slab_size={slab_size!r} cannot be used; give "all" or a number from 1'
        )
    fused = device == "cuda" or compiler_here() is not None
    baselines = {toggle.name: toggle.levels[0].value for toggle in TOGGLES}
    return {**baselines, **OPTIMISED, "fused_kernel": "on" if fused else "off", "slab_size": slab_size}


def _arrays(x: Any, labels: Any, suffix: str) -> dict[str, np.ndarray]:
    """The arrays of the file format from activations and labels of a kind that is at hand."""
    indptr, indices, values, shape = _csr(x, f"x{suffix}" if suffix else "x_csr")
    labels = np.asarray(labels.cpu() if isinstance(labels, torch.Tensor) else labels)
    name = "labels_multihot" if labels.ndim == 2 else "labels"
    arrays = {"indptr": indptr, "indices": indices, "values": values, "shape": shape, name: labels}
    return {f"{one}{suffix}": array for one, array in arrays.items()}


def _csr(x: Any, name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Row pointers, columns, values and shape."""
    from scipy import sparse

    if isinstance(x, torch.Tensor):
        x = x.detach().cpu()
        if x.layout == torch.sparse_csr:
            parts = (x.crow_indices(), x.col_indices(), x.values())
            return (*(part.numpy() for part in parts), np.array(x.shape))
        x = x.to_dense().numpy()
    if not sparse.issparse(x):
        x = np.asarray(x)
    if x.ndim != 2:
        raise ConfigError(f"fit_probes: {name} has {x.ndim} dimensions; give a matrix (rows, latents)")
    matrix: Any = sparse.csr_array(x)
    return matrix.indptr, matrix.indices, matrix.data, np.array(matrix.shape)


def _probes(arrays: dict[str, np.ndarray]) -> Probes:
    return Probes(
        coefficients=arrays["coef"],
        intercepts=arrays["intercept"],
        losses=arrays["loss"],
        losses_held_out=arrays.get("loss_val"),
        confusion={name: arrays[name] for name in ("tp", "fp", "tn", "fn")},
        reason=arrays["reason"],
        arrays=arrays,
    )
