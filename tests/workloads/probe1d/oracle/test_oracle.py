"""The float64 minimiser that judges solvers is judged by three methods that share nothing with it."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from perfsweep.workloads.probe1d import oracle

RIDGE = 1e-8


def dense_loss(x, y, b, w):
    """F of one pair, one row after the other."""
    total = 0.0
    for value, label in zip(x, y, strict=True):
        eta = b + w * value
        total += max(eta, 0.0) + np.log1p(np.exp(-abs(eta))) - label * eta
    share = min(max(y.mean(), 1e-8), 1 - 1e-8)
    prior = np.log(share / (1 - share))
    return total / len(x) + RIDGE / 2 * (w**2 + (b - prior) ** 2)


def events_of(dense, labels):
    rows, columns = np.nonzero(dense)
    indptr = np.concatenate([[0], np.cumsum(np.count_nonzero(dense, axis=1))])
    return oracle.Events.of(indptr, columns, dense[rows, columns], dense.shape[1], labels)


def small_cases():
    rng = np.random.default_rng(3)
    x = rng.lognormal(size=40) * (rng.random(40) < 0.4)
    y = rng.random(40) < 0.3
    yield "mixed", x, y
    yield "no non-zeros", np.zeros(40), y
    yield "no zeros", rng.lognormal(size=40), y
    yield "negative values", x * np.where(rng.random(40) < 0.5, -1, 1), y
    yield "no positives", x, np.zeros(40, dtype=bool)
    yield "only positives", x, np.ones(40, dtype=bool)
    yield "separable", x, x > 0


CASES = list(small_cases())


@pytest.mark.parametrize(("x", "y"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_the_loss_equals_a_loop_over_all_rows(x, y):
    events = events_of(x[:, None], y[:, None])
    column = next(iter(oracle.columns(events)))
    for b, w in ((-0.3, 0.7), (2.0, -1.5), (-9.0, 4.0)):
        found = float(column.objective(np.array([b]), np.array([w]))[0])
        # Forty additions in float64: 1e-10 leaves room for softplus and label term to cancel.
        assert found == pytest.approx(dense_loss(x, y, b, w), rel=1e-10, abs=1e-12)


@pytest.mark.parametrize(("x", "y"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_no_neighbour_of_the_minimiser_has_a_smaller_loss(x, y):
    events = events_of(x[:, None], y[:, None])
    b, w, loss = (float(part[0, 0]) for part in oracle.minimise(events))
    assert loss == pytest.approx(dense_loss(x, y, b, w), rel=1e-10, abs=1e-12)
    for db, dw in ((1e-3, 0), (-1e-3, 0), (0, 1e-3), (0, -1e-3), (1e-3, -1e-3)):
        # A flat ridge-bounded direction may gain nothing, but never more than rounding.
        assert dense_loss(x, y, b + db, w + dw) >= loss - 1e-15


def test_derivatives_equal_finite_differences():
    rng = np.random.default_rng(0)
    x = rng.lognormal(size=300) * (rng.random(300) < 0.3)
    y = rng.random(300) < 0.2
    column = next(iter(oracle.columns(events_of(x[:, None], y[:, None]))))
    step = 1e-5

    def loss(b, w):
        return float(column.objective(np.array([b]), np.array([w]))[0])

    def slopes(b, w):
        return np.array([float(part[0]) for part in column.derivatives(np.array([b]), np.array([w]))[:2]])

    for b, w in ((-1.0, 0.5), (0.3, -0.8)):
        g0, g1, h00, h01, h11 = (float(part[0]) for part in column.derivatives(np.array([b]), np.array([w])))
        assert (loss(b + step, w) - loss(b - step, w)) / (2 * step) == pytest.approx(g0, rel=1e-6)
        assert (loss(b, w + step) - loss(b, w - step)) / (2 * step) == pytest.approx(g1, rel=1e-6)
        along_b = (slopes(b + step, w) - slopes(b - step, w)) / (2 * step)
        along_w = (slopes(b, w + step) - slopes(b, w - step)) / (2 * step)
        assert along_b == pytest.approx([h00, h01], rel=1e-6)
        assert along_w == pytest.approx([h01, h11], rel=1e-6)


def test_the_minimiser_equals_scikit_learn_where_the_pair_is_well_posed():
    rng = np.random.default_rng(5)
    rows, latents, classes = 800, 6, 3
    dense = rng.lognormal(size=(rows, latents)) * (rng.random((rows, latents)) < 0.3)
    ids = rng.integers(0, classes, rows)
    labels = ids[:, None] == np.arange(classes)
    b, w, _ = oracle.minimise(events_of(dense, labels))
    for latent in range(latents):
        for label in range(classes):
            x, y = dense[:, latent], labels[:, label]
            assert min(y[x > 0].sum(), (~y)[x > 0].sum(), y[x == 0].sum()) >= 5
            model = LogisticRegression(C=1e8, solver="lbfgs", tol=1e-10, max_iter=10_000).fit(x[:, None], y)
            # scikit-learn's own stopping error dominates: 1.2e-5 and 2.3e-7 were seen on such pairs.
            assert w[latent, label] == pytest.approx(model.coef_[0, 0], rel=5e-5)
            assert b[latent, label] == pytest.approx(model.intercept_[0], rel=5e-6)


def test_the_scaled_minimiser_is_scikit_learns_of_the_standardised_latent_whatever_its_offset():
    rng = np.random.default_rng(6)
    signal = rng.normal(size=300)
    y = signal + rng.logistic(size=300) > 0
    model = LogisticRegression(C=1 / (0.1 * 300), tol=1e-10).fit(
        (signal[:, None] - signal.mean()) / signal.std(), y
    )
    dense = np.stack([signal, 1e4 + 1e-2 * signal], 1)
    b, w, objective = oracle.minimise(events_of(dense, y[:, None]), oracle.Objective(0.1, scaled=True))
    assert (w[:, 0] * dense.std(0)) == pytest.approx(model.coef_[0, 0], rel=1e-4)
    assert (b[:, 0] + w[:, 0] * dense.mean(0)) == pytest.approx(model.intercept_[0], abs=1e-4)
    least = oracle.minimise(events_of(dense, y[:, None]), oracle.LOSS)[2]
    judged = oracle.judge(events_of(dense, y[:, None]), b, w, oracle.Objective(0.1, scaled=True))
    assert judged.objective == pytest.approx(objective, rel=1e-9)
    assert (judged.loss - least).min() > 1e-4


def test_exact_counts_and_excused_pairs_follow_the_threshold():
    x = np.array([0.0, 1.0, 2.0, 3.0])
    y = np.array([True, False, True, True])
    verdict = oracle.judge(events_of(x[:, None], y[:, None]), np.array([[-1.5]]), np.array([[1.0]]))
    assert (verdict.tp[0, 0], verdict.fp[0, 0], verdict.near[0, 0]) == (2, 0, False)
    edge = oracle.judge(events_of(x[:, None], y[:, None]), np.array([[-2.0]]), np.array([[1.0]]))
    assert (edge.tp[0, 0], edge.near[0, 0]) == (1, True)
