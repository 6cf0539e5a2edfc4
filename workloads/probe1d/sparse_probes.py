"""Probes of k latents together for each class: chosen by their means, then one logistic regression on them.

As sparse probing has it (Gurnee et al. 2023, "Finding neurons in a haystack"), and evaluations of sparse
autoencoders after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any

import numpy as np

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.probe1d.data import npz
from perfsweep.workloads.probe1d.data.npz import arrays_of, stored_matrix
from perfsweep.workloads.probe1d.data.problem import Csr, Labels, prior_logit

CHUNK = 256
"""Classes whose means are held at once."""
HALVINGS = 40
WEIGHTS = (None, "balanced")


@dataclass(frozen=True)
class SparseProbes:
    """A probe sigmoid(intercept + sum_j coefficient_j x[latent_j]) for each of C classes.

    Attributes
    ----------
    latents : int64 [C, k], numbers of the latents, the best first
    coefficients : float64 [C, k], in the units of the activations
    intercepts : float64 [C]
    losses : mean negative log-likelihood on the training rows, each row counting once, float64 [C]
    losses_held_out : the same on the held-out rows, None without any
    auroc_held_out : share of pairs of a held-out row with the class and one without that the probe ranks
        rightly, ties half, float64 [C]; NaN for a class of none or of all of them; None without held-out rows
    f1_held_out : harmonic mean of precision and recall at a probability above 1/2, float64 [C]; 0 without
        either
    converged : bool [C], whether the gradient came below `tol`
    width : latents that there were, L
    """

    latents: np.ndarray
    coefficients: np.ndarray
    intercepts: np.ndarray
    losses: np.ndarray
    losses_held_out: np.ndarray | None
    auroc_held_out: np.ndarray | None
    f1_held_out: np.ndarray | None
    converged: np.ndarray
    width: int

    def logits(self, x: Any) -> np.ndarray:
        """Log odds of every class, float64 [N, C], for activations [N, L] in any form that the fit takes.

        Raises
        ------
        ConfigError
            They are no matrix of numbers, or have other latents.
        """
        columns = stored_matrix(x, "x").tocsc()
        if columns.shape[1] != self.width:
            raise ConfigError(f"x={columns.shape}: has other latents. Give rows of {self.width}.")
        return np.stack([self._logit(columns, number) for number in range(len(self.intercepts))], axis=1)

    def _logit(self, columns: Any, number: int) -> np.ndarray:
        return columns[:, self.latents[number]] @ self.coefficients[number] + self.intercepts[number]


def fit_sparse_probes(
    x_csr: Any,
    labels: Any,
    *,
    k: int | None = None,
    latents: Any = None,
    class_weight: str | None = None,
    x_val: Any = None,
    labels_val: Any = None,
    classes: int | None = None,
    ridge: float = 1e-4,
    tol: float = 1e-8,
    max_iter: int = 100,
) -> SparseProbes:
    """Choose k latents for every class and fit one logistic regression on them, in float64.

    Minimised is the weighted mean loss and ridge/2 sum_j (w_j spread_j)^2, with each latent's standard
    deviation over all rows: what scikit-learn's LogisticRegression minimises on standardised columns at
    C = 1 / (ridge N).

    Parameters
    ----------
    x_csr : activations [N, L], floats, integers or booleans: a scipy sparse matrix or array, a torch tensor,
        sparse or not, or a dense array
    labels : class numbers [N], True and False for 1 and 0, or flags [N, C] where a row has any number of
        classes
    k : latents of each class: those whose means with and without the class differ most
    latents : instead of k, your own choice, whole numbers [C, k]
    class_weight : None, or "balanced": rows with a class weigh as much together as those without
    x_val, labels_val : held-out rows, in the same form
    classes : number of classes, where it is more than the largest number says
    ridge : weight of the penalty, above 0, so that a class that its latents separate has a minimum
    tol : on the gradient of the mean loss, for coefficients times spread
    max_iter : Newton steps

    Raises
    ------
    ConfigError
        An argument cannot be used; the message names it and what to do.
    """
    _refuse_unusable(k, latents, class_weight, ridge, tol, max_iter)
    if (x_val is None) != (labels_val is None):
        raise ConfigError("fit_sparse_probes: x_val and labels_val belong together. Give both or neither.")
    given = arrays_of(x_csr, labels, "") | ({} if x_val is None else arrays_of(x_val, labels_val, "_val"))
    data = npz.problem("fit_sparse_probes", "fit_sparse_probes", given, classes)
    columns, count = _matrix(data.x).tocsc(), data.labels.classes
    chosen = (
        _chosen(columns, data.labels, k) if latents is None else _checked(latents, count, columns.shape[1])
    )
    options = (class_weight == "balanced", ridge, tol, max_iter)
    fits = [
        _fit(columns[:, own], _flags(data.labels, [number])[:, 0], *options)
        for number, own in enumerate(chosen)
    ]
    w, b, done = (np.stack([fit[part] for fit in fits]) for part in range(3))
    probes = SparseProbes(chosen, w, b, np.empty(0), None, None, None, done, columns.shape[1])
    losses, _, _ = _scores(probes, columns, data.labels)
    held = (None, None, None)
    if data.x_val is not None and data.labels_val is not None:
        held = _scores(probes, _matrix(data.x_val).tocsc(), data.labels_val)
    return replace(
        probes, losses=losses, losses_held_out=held[0], auroc_held_out=held[1], f1_held_out=held[2]
    )


def _refuse_unusable(
    k: int | None, latents: Any, class_weight: str | None, ridge: float, tol: float, max_iter: int
) -> None:
    if (k is None) == (latents is None):
        raise ConfigError("fit_sparse_probes: k and latents are two ways to say one thing. Give one of them.")
    for name, value in (("k", k), ("max_iter", max_iter)):
        if value is not None and not (isinstance(value, Integral) and value >= 1):
            raise ConfigError(f"{name}={value!r}: is out of range. Give a whole number from 1.")
    if class_weight not in WEIGHTS:
        raise ConfigError(f'class_weight={class_weight!r}: is not known. Give None or "balanced".')
    for name, value, least in (("ridge", ridge, 1e-12), ("tol", tol, 1e-14)):
        if not (isinstance(value, Real) and least <= value < 1):
            raise ConfigError(f"{name}={value!r}: is out of range. Give a number from {least:g} to below 1.")


def _checked(latents: Any, classes: int, width: int) -> np.ndarray:
    """A choice of the user's, int64 [C, k]."""
    try:
        found = np.asarray(latents)
    except ValueError:  # rows of different lengths
        found = np.empty((0, 0))
    if found.ndim != 2 or found.shape[0] != classes or not found.shape[1] or found.dtype.kind not in "iu":
        raise ConfigError(
            f"latents={found.dtype} {list(found.shape)}: does not fit. Give whole numbers"
            f" [{classes}, k], a row for each class."
        )
    ordered = np.sort(found, axis=1)
    wrong = (ordered[:, 0] < 0) | (ordered[:, -1] >= width) | (np.diff(ordered) == 0).any(axis=1)
    if wrong.any():
        row = int(wrong.argmax())
        raise ConfigError(
            f"latents={found[row].tolist()}: of class {row} are not k different numbers from 0 to"
            f" {width - 1}. Give such."
        )
    return found.astype(np.int64)


def _matrix(x: Csr) -> Any:
    """A scipy matrix [N, L] in float64."""
    from scipy import sparse

    parts = x.values.double().numpy(), x.indices.numpy(), x.indptr.numpy()
    return sparse.csr_array(parts, shape=(x.rows, x.latents))


def _flags(labels: Labels, classes: Sequence[int]) -> np.ndarray:
    """Whether rows have classes, bool [N, C]."""
    import torch

    return labels.dense(torch.tensor(classes), torch.bool).numpy()


def _chosen(columns: Any, labels: Labels, k: int | None) -> np.ndarray:
    """The k latents of each class whose means differ most, int64 [C, k]; of equal ones the first."""
    rows, width = columns.shape
    if k is None or k > width:
        raise ConfigError(f"k={k}: is more than the {width} latents that there are. Give fewer.")
    total, found = np.asarray(columns.sum(axis=0)), []
    for start in range(0, labels.classes, CHUNK):
        flags = _flags(labels, range(start, min(start + CHUNK, labels.classes)))
        sums, positives = np.asarray(columns.T @ flags.astype(np.float64)).T, flags.sum(axis=0)[:, None]
        negatives = rows - positives
        means = sums / np.maximum(positives, 1), (total - sums) / np.maximum(negatives, 1)
        found.append(np.argsort(-np.abs(means[0] - means[1]), axis=1, kind="stable")[:, :k])
    return np.concatenate(found)


def _fit(
    x: Any, flags: np.ndarray, balanced: bool, ridge: float, tol: float, max_iter: int
) -> tuple[np.ndarray, np.ndarray, bool]:
    """Coefficients [k] and intercept [] of columns [N, k], and whether they are at the minimum."""
    rows, positives = len(flags), int(flags.sum())
    if positives in (0, rows):
        import torch

        return np.zeros(x.shape[1]), prior_logit(torch.tensor(positives), rows).double().numpy(), True
    # Rows in which all k latents are silent are one row that counts many times.
    active = np.unique(x.indices)
    dense = np.concatenate([x.tocsr()[active].toarray(), np.zeros((1, x.shape[1]))])
    own = flags[active]
    times = np.array([[positives - own.sum()], [rows - positives - (~own).sum()]])
    weights = np.concatenate([np.stack([own, ~own]), times], axis=1).astype(np.float64)
    mean = (weights.sum(axis=0) @ dense) / rows
    spread = np.sqrt((weights.sum(axis=0) @ (dense - mean) ** 2) / rows)
    constant = spread <= 1e-14 * np.abs(mean)  # but for rounding
    spread[constant] = 1
    if balanced:
        weights *= [[0.5 / positives], [0.5 / (rows - positives)]]
    else:
        weights /= rows
    design = np.concatenate([(dense - mean) / spread, np.ones((len(dense), 1))], axis=1)
    found, done = _minimum(design, weights, ridge, tol, max_iter)
    w = np.where(constant, 0, found[:-1] / spread)
    return w, found[-1] - w @ mean, done


def _minimum(
    design: np.ndarray, weights: np.ndarray, ridge: float, tol: float, max_iter: int
) -> tuple[np.ndarray, bool]:
    """By Newton's method from the prior; `weights` [2, n] are those of rows with and without the class."""
    from scipy.special import expit

    penalty = np.full(design.shape[1], ridge)
    penalty[-1] = 0  # the intercept's

    def value(at: np.ndarray) -> float:
        z = design @ at
        loss = weights[0] @ np.logaddexp(0, -z) + weights[1] @ np.logaddexp(0, z)
        return float(loss + 0.5 * penalty @ at**2)

    at = np.zeros(design.shape[1])
    at[-1] = np.log(weights[0].sum() / weights[1].sum())
    now = value(at)
    for _ in range(max_iter):
        share = expit(design @ at)
        gradient = design.T @ (weights[1] * share - weights[0] * (1 - share)) + penalty * at
        if np.abs(gradient).max() <= tol:
            return at, True
        curvature = weights.sum(axis=0) * share * (1 - share)
        step = np.linalg.lstsq((design.T * curvature) @ design + np.diag(penalty), gradient, rcond=None)[0]
        for halving in range(HALVINGS):
            following = at - step / 2**halving
            if (new := value(following)) <= now:
                break
        else:
            return at, False
        at, now = following, new
    return at, False


def _scores(probes: SparseProbes, columns: Any, labels: Labels) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean losses, AUROC and F1 of rows, float64 [C] each."""
    scores = (
        _score(probes._logit(columns, number), _flags(labels, [number])[:, 0])
        for number in range(len(probes.intercepts))
    )
    losses, auroc, f1 = zip(*scores, strict=True)
    return np.array(losses), np.array(auroc), np.array(f1)


def _score(logits: np.ndarray, flags: np.ndarray) -> tuple[float, float, float]:
    from scipy.stats import rankdata

    loss = np.logaddexp(0, np.where(flags, -logits, logits)).mean()
    positives, negatives = int(flags.sum()), int((~flags).sum())
    auroc = np.nan
    if positives and negatives:  # Mann and Whitney 1947
        auroc = (rankdata(logits)[flags].sum() - positives * (positives + 1) / 2) / (positives * negatives)
    told = logits > 0
    right = int((told & flags).sum())
    return float(loss), float(auroc), 2 * right / max(int(told.sum()) + positives, 1)
