"""Probes of your own activations, without a sweep: the optimised path as a function."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from perfsweep.workloads.api import Levels, NullClock
from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.native import compiler_here
from perfsweep.workloads.probe1d.config import Probe1DConfig
from perfsweep.workloads.probe1d.counters import Counts
from perfsweep.workloads.probe1d.data import npz
from perfsweep.workloads.probe1d.data.npz import arrays_of
from perfsweep.workloads.probe1d.data.problem import SCALED, Csr, label_sums
from perfsweep.workloads.probe1d.data.sources import place
from perfsweep.workloads.probe1d.maths.blocks import Reason
from perfsweep.workloads.probe1d.maths.job import CountConfusion, Job, Task
from perfsweep.workloads.probe1d.maths.prepared_rows import PreparedRows
from perfsweep.workloads.probe1d.variants import TOGGLES, arm

OPTIMISED = {
    "solver": "newton",
    "consistent_stop": "scaled",
    "label_free": "on",
    "csc_layout": "on",
    "active_set": "pair",
    "warm_start": "on",
    "qx_stat": "rms_free",
    "confusion_search": "on",
}
"""Levels of `newton_native`, the fastest arm of `sweep=headline`, and counts by search. The native kernel is
added where the machine can build it."""


@dataclass(frozen=True)
class Probes:
    """A probe sigmoid(intercept + coefficient x) for every (latent, class) pair; matrices are [L, C].

    Attributes
    ----------
    coefficients, intercepts : float64
    losses : mean negative log-likelihood on the training rows, float32
    losses_held_out : the same on the held-out rows, None without any
    auroc_held_out : share of pairs of a held-out row with the class and one without that the probe ranks
        rightly, ties half (Mann and Whitney 1947), float64; NaN for a class of none or of all of them
    f1_held_out : harmonic mean of precision and recall at a probability above 1/2, float64; 0 without either
    confusion : `tp`, `fp`, `tn`, `fn`, int64: training rows by class and by a probability above 1/2
    reason : uint8: 0 converged, 1 dead latent (prior alone), 3 not converged, 4 converged to the minimum of
        loss and penalty, where the penalty costs more than 2e-6 of loss
    arrays : what a file of probes holds, by its names: the above without scores, `gmax` and `evals`
    levels : the path that ran: toggles as a sweep names them; `fused_kernel` is off without a compiler
    """

    coefficients: np.ndarray
    intercepts: np.ndarray
    losses: np.ndarray
    losses_held_out: np.ndarray | None
    auroc_held_out: np.ndarray | None
    f1_held_out: np.ndarray | None
    confusion: dict[str, np.ndarray]
    reason: np.ndarray
    arrays: dict[str, np.ndarray]
    levels: Levels

    @property
    def converged(self) -> np.ndarray:
        """Pairs whose loss is at its minimum, bool [L, C]; a dead latent's is the prior of the class."""
        return (self.reason == Reason.CONVERGED) | (self.reason == Reason.DEAD)

    def save(self, path: str | Path) -> None:
        """Write `arrays` to an .npz file, in the types that `data.npz.PROBES` documents.

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

    Each minimises its mean loss and a penalty, see `ridge`, by the path that `sweep=headline` finds fastest;
    without a C++ compiler it warns and takes a slower one.

    Parameters
    ----------
    x_csr : activations [N, L], floats, integers or booleans: a scipy sparse matrix or array, a torch tensor,
        sparse or not, or a dense array
    labels : class numbers [N], True and False for 1 and 0, or flags [N, C] where a row has any number of
        classes; floats where they are whole
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
    given = arrays_of(x_csr, labels, "")
    if (x_val is None) != (labels_val is None):
        raise ConfigError("fit_probes: x_val and labels_val belong together; give both or neither")
    if x_val is not None:
        given |= arrays_of(x_val, labels_val, "_val")
    storage = "float64" if given["values"].dtype == np.float64 else "float32"
    config = Probe1DConfig(
        "fit_probes", classes=classes, storage_dtype=storage, tol=tol, ridge=ridge, max_iter=max_iter
    )
    data = place(npz.problem("fit_probes", "fit_probes", given, classes), device, config.storage_dtype)
    grid = torch.arange(data.labels.classes, device=device)
    levels = _levels(slab_size, device)
    paths = arm(levels)(levels, config, Counts(), lambda row: None, NullClock.phase, device)
    job = Job(Task(data, grid, config, paths), None)
    for _ in job.passes():
        continue
    return _probes({"classes": grid.cpu().numpy(), **job.by_name()}, _scores(job), levels)


def _scores(job: Job) -> tuple[np.ndarray | None, np.ndarray | None]:
    """AUROC and F1 on held-out rows, where there are any."""
    held_out = job.prepared.held_out if job.prepared else None
    if held_out is None:
        return None, None
    found = scores(held_out, job.task.paths.confusion(held_out), job.results["b"], job.results["w"])
    return found.auroc.cpu().numpy(), found.f1.cpu().numpy()


def _levels(slab_size: int | str, device: str) -> Levels:
    if slab_size != "all" and not (isinstance(slab_size, int) and slab_size >= 1):
        raise ConfigError(
            f'fit_probes: slab_size={slab_size!r} cannot be used; give "all" or a number from 1'
        )
    fused = device == "cuda" or compiler_here() is not None
    if not fused:
        warnings.warn("fit_probes: no C++ compiler is on PATH, so this is slow. Install g++.", stacklevel=3)
    baselines = {toggle.name: toggle.levels[0].value for toggle in TOGGLES}
    return {**baselines, **OPTIMISED, "fused_kernel": "on" if fused else "off", "slab_size": slab_size}


def _probes(
    arrays: dict[str, np.ndarray], scored: tuple[np.ndarray | None, np.ndarray | None], levels: Levels
) -> Probes:
    return Probes(
        coefficients=arrays["coef"],
        intercepts=arrays["intercept"],
        losses=arrays["loss"],
        losses_held_out=arrays.get("loss_val"),
        auroc_held_out=scored[0],
        f1_held_out=scored[1],
        confusion={name: arrays[name] for name in ("tp", "fp", "tn", "fn")},
        reason=arrays["reason"],
        arrays=arrays,
        levels=levels,
    )


@dataclass(frozen=True)
class Scores:
    """Of every pair, float64 [L, C]; `auroc` is NaN where the rows have one label, `f1` then 0."""

    auroc: Tensor
    f1: Tensor


def scores(rows: PreparedRows, count: CountConfusion, b: Tensor, w: Tensor) -> Scores:
    """Scores on `rows` of the probes b, w float64 [L, C], latents in their original order."""
    positives = rows.constants.positives.long()
    counted = count(torch.arange(b.shape[1], device=b.device), positives, b, w)
    wrong = counted.fp + counted.fn
    return Scores(auroc(rows, w), 2 * counted.tp / (2 * counted.tp + wrong).clamp(min=1).double())


def auroc(rows: PreparedRows, w: Tensor) -> Tensor:
    """Share of pairs of a positive and a negative row that the probe ranks rightly, ties half, [L, C].

    A probe ranks rows as its latent does, or the other way round: the rank sum of positive rows decides
    (Mann and Whitney 1947).
    """
    x, positives = rows.x, rows.constants.positives
    ranks, silent = midranks(x)
    hits, rank_sum = label_sums(replace(x, values=ranks), rows.labels, rows.grid)
    rank_sum = rank_sum + (positives - hits) * silent[:, None]
    rising = (rank_sum - positives * (positives + 1) / 2) / (positives * (x.rows - positives))
    # Through 1/2: a probe that ignores its latent ranks nothing.
    return 0.5 + torch.sign(w) * (rising - 0.5)


def midranks(x: Csr) -> tuple[Tensor, Tensor]:
    """Rank of each event among all rows of its latent, float64 [nnz], and of silent rows [L]; ties share."""
    values, by_value = torch.sort(x.values)
    latent, by_latent = torch.sort(x.indices[by_value], stable=True)
    values, order = values[by_latent], by_value[by_latent]
    fresh = torch.ones_like(latent, dtype=torch.bool)
    fresh[1:] = (latent[1:] != latent[:-1]) | (values[1:] != values[:-1])
    size = torch.diff(fresh.nonzero().squeeze(1), append=latent.new_tensor([latent.numel()]))
    first = torch.cumsum(size, 0) - size
    count = torch.bincount(latent, minlength=x.latents)
    below = torch.bincount(latent[values < 0], minlength=x.latents)
    rank = (first + (size.double() + 1) / 2).repeat_interleave(size) - (count.cumsum(0) - count)[latent]
    rank += torch.where(values > 0, x.rows - count[latent], 0)
    return torch.empty_like(rank).index_copy_(0, order, rank), below + (x.rows - count + 1).double() / 2
