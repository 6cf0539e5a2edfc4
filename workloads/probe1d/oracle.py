"""The unique minimiser of every pair's objective in float64, and what other parameters miss by. Numpy only.

Shares no line with the solvers it judges: constants and formulas are written out again, every event is
visited with its label, and progress is accepted by the loss itself (Newton with backtracking; Nocedal &
Wright 2006, chapter 3). It moves in (c, v), eta = c + v u with u the centred events in units of their spread:
where values are large compared to their spread, b and w cancel to the last digits of float64.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

GRADIENT_GOAL = 1e-12
DECREMENT_GOAL = 1e-15
MAX_STEPS = 400
NEAR_LOGIT = 1e-5
NEAR_SHARE = 3e-7
"""A datum this close to the threshold, in logits and as a share of |b|, may fall on either side in float32:
its pair is excused from exact counts."""

Array = np.ndarray


@dataclass(frozen=True)
class Objective:
    """Mean loss and ridge/2 (w^2 + (b - prior)^2), the report's; or `scaled`, ridge/2 (w spread)^2.

    There `spread` is the standard deviation over all rows, the size of a value that is in every row.
    """

    ridge: float = 1e-8
    scaled: bool = False


REPORT = Objective()
LOSS = Objective(1e-20, scaled=True)
"""The loss alone, held where it has no minimum."""


@dataclass(frozen=True)
class Events:
    """Activations by latent in numpy: row and value of each event, `starts` [L + 1]; labels bool [N, C]."""

    starts: Array
    rows: Array
    values: Array
    labels: Array

    @classmethod
    def of(cls, indptr: Array, indices: Array, values: Array, latents: int, labels: Array) -> Events:
        """From activations stored by row."""
        row = np.repeat(np.arange(indptr.size - 1), np.diff(indptr))
        order = np.argsort(indices, kind="stable")
        starts = np.concatenate([[0], np.cumsum(np.bincount(indices, minlength=latents))])
        return cls(starts, row[order], values[order].astype(np.float64), labels.astype(bool))

    @property
    def latents(self) -> int:
        """L."""
        return self.starts.size - 1

    def latent(self, number: int) -> tuple[Array, Array]:
        """Values [n] and labels [n, C] of one latent's events."""
        part = slice(self.starts[number], self.starts[number + 1])
        return self.values[part], self.labels[self.rows[part]]


@dataclass(frozen=True)
class Column:
    """One latent's problem for all classes: x [n], y [n, C], and what the silent rows contribute.

    `unit` is the root mean square of x; `centre` and `spread` its mean and standard deviation; w^2 / 2 and
    (b - prior)^2 / 2 are penalised by `ridge_w` and `ridge_b`.
    """

    x: Array
    y: Array
    rows: int
    silent: int
    silent_hits: Array
    prior: Array
    unit: float
    centre: float
    spread: float
    ridge_w: float
    ridge_b: float

    @property
    def silent_at(self) -> float:
        """Where the silent rows' x = 0 lies among the centred events."""
        return -self.centre / self.spread

    def raw(self, c: Array, v: Array) -> tuple[Array, Array]:
        """(b, w) of centred parameters."""
        return c + v * self.silent_at, v / self.spread

    @property
    def u(self) -> Array:
        """Centred events, [n, 1]."""
        return ((self.x - self.centre) / self.spread)[:, None]

    def loss(self, b: Array, w: Array) -> Array:
        """Mean loss of each class without penalty, [C]."""
        return self._mean_loss(b + self.x[:, None] * w, b)

    def objective(self, b: Array, w: Array) -> Array:
        """F of each class, [C]."""
        return self.loss(b, w) + self._penalty(b, w)

    def centred_objective(self, c: Array, v: Array) -> Array:
        """F of centred parameters, [C]."""
        b, w = self.raw(c, v)
        return self._mean_loss(c + self.u * v, b) + self._penalty(b, w)

    def _mean_loss(self, eta: Array, silent: Array) -> Array:
        """From the logits of events [n, C] and of silent rows [C]."""
        total = (np.logaddexp(0, eta) - self.y * eta).sum(0)
        return (total + self.silent * np.logaddexp(0, silent) - self.silent_hits * silent) / self.rows

    def _penalty(self, b: Array, w: Array) -> Array:
        return (self.ridge_w * w**2 + self.ridge_b * (b - self.prior) ** 2) / 2

    def derivatives(self, b: Array, w: Array) -> tuple[Array, Array, Array, Array, Array]:
        """g0, g1, h00, h01, h11 of each class, [C]."""
        x = self.x[:, None]
        mu, s = _sigmoid(b + x * w)
        mu0, s0 = _sigmoid(b)
        residual = mu - self.y
        g0 = (residual.sum(0) + self.silent * mu0 - self.silent_hits) / self.rows
        g1 = (residual * x).sum(0) / self.rows + self.ridge_w * w
        h00 = (s.sum(0) + self.silent * s0) / self.rows + self.ridge_b
        h11 = (s * x * x).sum(0) / self.rows + self.ridge_w
        return g0 + self.ridge_b * (b - self.prior), g1, h00, (s * x).sum(0) / self.rows, h11

    def centred_derivatives(self, c: Array, v: Array) -> tuple[Array, Array, Array, Array, Array]:
        """Gradient and Hessian with respect to (c, v) of each class, [C]."""
        u, at = self.u, self.silent_at
        mu, s = _sigmoid(c + u * v)
        mu0, s0 = _sigmoid(c + at * v)
        residual, group = mu - self.y, self.silent * mu0 - self.silent_hits
        b = c + v * at
        pull, ridge_v = self.ridge_b * (b - self.prior), self.ridge_w / self.spread**2
        g0 = (residual.sum(0) + group) / self.rows + pull
        g1 = ((residual * u).sum(0) + group * at) / self.rows + pull * at + ridge_v * v
        s0 = self.silent * s0
        h00 = (s.sum(0) + s0) / self.rows + self.ridge_b
        h01 = ((s * u).sum(0) + s0 * at) / self.rows + self.ridge_b * at
        h11 = ((s * u * u).sum(0) + s0 * at * at) / self.rows + self.ridge_b * at * at + ridge_v
        return g0, g1, h00, h01, h11

    def only(self, classes: Array) -> Column:
        """The same latent for some of the classes."""
        y, hits, prior = self.y[:, classes], self.silent_hits[classes], self.prior[classes]
        return replace(self, y=y, silent_hits=hits, prior=prior)


def _sigmoid(eta: Array) -> tuple[Array, Array]:
    t = np.exp(-np.abs(eta))
    upper = 1 / (1 + t)
    return np.where(eta >= 0, upper, t * upper), t * upper * upper


def columns(events: Events, objective: Objective = REPORT) -> Iterator[Column]:
    """The problem of each latent."""
    rows = events.labels.shape[0]
    totals = events.labels.sum(0)
    share = np.clip(totals / rows, 1e-8, 1 - 1e-8)
    prior = np.log(share) - np.log1p(-share)
    for number in range(events.latents):
        x, y = events.latent(number)
        unit = max(np.sqrt((x**2).mean()), 1e-6) if x.size else 1.0
        centre = float(x.mean()) if x.size else 0.0
        # Equal events have no spread to be measured in: their own size will do.
        spread = float(x.std()) if x.size and x.std() > 1e-12 * abs(centre) else abs(centre) or 1.0
        hits, share = totals - y.sum(0), x.size / rows
        # The variance over all rows from that of the events and the mean: no difference of squares.
        variance = share * (float(x.var()) + (1 - share) * centre**2) if x.size else 1.0
        ridge_w = objective.ridge * (variance if variance > (1e-10 * centre) ** 2 else centre**2)
        ridges = (ridge_w, 0.0) if objective.scaled else (objective.ridge, objective.ridge)
        y = y.astype(np.float64)
        yield Column(x, y, rows, rows - x.size, hits, prior, unit, centre, spread, *ridges)


def gradient_norm(column: Column, b: Array, w: Array) -> Array:
    """G = max(|g0|, |g1| / unit) of each class, [C]."""
    g0, g1, *_ = column.derivatives(b, w)
    return np.maximum(np.abs(g0), np.abs(g1) / column.unit)


def minimise_column(column: Column) -> tuple[Array, Array]:
    """The minimiser (b, w) of each class, [C] each."""
    c, v = column.prior.copy(), np.zeros_like(column.prior)
    open_classes = np.arange(c.size)
    for _ in range(MAX_STEPS):
        part = column.only(open_classes)
        g0, g1, h00, h01, h11 = part.centred_derivatives(c[open_classes], v[open_classes])
        det = np.maximum(h00 * h11 - h01 * h01, 1e-14 * h00 * h11)
        step_c, step_v = (h11 * g0 - h01 * g1) / det, (h00 * g1 - h01 * g0) / det
        steep = np.maximum(np.abs(g0), np.abs(g1) / max(1.0, abs(column.silent_at))) > GRADIENT_GOAL
        left = steep | (g0 * step_c + g1 * step_v > 2 * DECREMENT_GOAL)
        if not left.any():
            break
        moved = _backtrack(part, c[open_classes], v[open_classes], step_c, step_v, g0, g1)
        c[open_classes], v[open_classes] = moved
        open_classes = open_classes[left]
    return column.raw(c, v)


def _backtrack(
    part: Column, c: Array, v: Array, step_c: Array, step_v: Array, g0: Array, g1: Array
) -> tuple[Array, Array]:
    """Halve each step until the loss falls as a quarter of the slope promises, up to rounding of the loss."""
    start, slope = part.centred_objective(c, v), g0 * step_c + g1 * step_v
    size = np.ones_like(c)
    for _ in range(60):
        reached = part.centred_objective(c - size * step_c, v - size * step_v)
        bad = reached > start - 0.25 * size * slope + 1e-15 * (1 + np.abs(start))
        if not bad.any():
            break
        size = np.where(bad, size / 2, size)
    return c - size * step_c, v - size * step_v


def minimise(events: Events, objective: Objective = REPORT) -> tuple[Array, Array, Array]:
    """b, w and F of every pair at its minimiser, float64 [L, C] each."""
    found = []
    for column in columns(events, objective):
        b, w = minimise_column(column)
        found.append((b, w, column.objective(b, w)))
    b, w, loss = (np.stack(part) for part in zip(*found, strict=True))
    return b, w, loss


@dataclass(frozen=True)
class Verdict:
    """What parameters come to, [L, C] each: F, loss alone, G, exact counts above 1/2, excused pairs."""

    objective: Array
    loss: Array
    gradient: Array
    tp: Array
    fp: Array
    near: Array


def judge(events: Events, b: Array, w: Array, objective: Objective = REPORT) -> Verdict:
    """Evaluate every pair at (b, w) [L, C] on all events, in float64."""
    found = []
    for number, column in enumerate(columns(events, objective)):
        eta = b[number] + column.x[:, None] * w[number]
        fires, silent_fires = eta > 0, b[number] > 0
        tp = (fires & (column.y > 0)).sum(0) + np.where(silent_fires, column.silent_hits, 0)
        predicted = fires.sum(0) + np.where(silent_fires, column.silent, 0)
        room = NEAR_LOGIT + NEAR_SHARE * np.abs(b[number])
        near = (np.abs(eta) <= room).any(0) | (np.abs(b[number]) <= NEAR_LOGIT)
        found.append(
            (
                column.objective(b[number], w[number]),
                column.loss(b[number], w[number]),
                gradient_norm(column, b[number], w[number]),
                tp,
                predicted - tp,
                near,
            )
        )
    return Verdict(*(np.stack(part) for part in zip(*found, strict=True)))
