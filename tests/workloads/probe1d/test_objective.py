"""A probe does not depend on the units of its latent, and a penalty that costs loss is told."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.probe1d import fit_probes

ROWS = 400
SIZES = [10.0**power for power in range(-8, 9, 4)]
OFFSETS = [0.0, *SIZES, *(-size for size in SIZES)]
RESOLVED = 1e9
"""Offset in units of the spread up to which float64 tells a latent's values apart for sure."""
PROMISE = 2e-6
NOT_CONVERGED, PENALISED = 3, 4


@pytest.fixture(scope="module")
def signal():
    return np.random.default_rng(7).normal(size=ROWS)


def every_unit(values, rows_on):
    """Latents [N, L] of every offset and spread of the values, and which of them float64 resolves."""
    made = [(offset, spread, on) for offset in OFFSETS for spread in SIZES for on in rows_on]
    x = np.stack([(offset + spread * values) * on for offset, spread, on in made], 1)
    return x, np.array([abs(offset) <= RESOLVED * spread for offset, spread, _ in made])


def standardised(x):
    return (x - x.mean()) / (x.std() or 1.0)


def independent(x, y, ridge=1e-12):
    """scikit-learn's model of one latent in units of its standard deviation."""
    model = LogisticRegression(C=1 / (ridge * x.size), solver="newton-cholesky", tol=1e-12, max_iter=300)
    return model.fit(standardised(x)[:, None], y)


def loss_at(eta, y):
    return (np.logaddexp(0, eta) - y * eta).mean(0)


def independent_loss(x, y):
    return loss_at(independent(x, y).decision_function(standardised(x)[:, None]), y)


def test_every_offset_and_spread_ends_at_the_minimum_of_the_loss_or_says_that_it_does_not(signal):
    rng = np.random.default_rng(8)
    x, resolved = every_unit(signal, (np.ones(ROWS), np.arange(ROWS) % 2 == 0))
    flags = np.stack([signal + rng.logistic(size=ROWS) > 0, rng.random(ROWS) < 0.3], 1)
    probes = fit_probes(x, flags)
    least = np.array([[independent_loss(column, y) for y in flags.T] for column in x.T])
    assert probes.converged[resolved].all()
    assert (probes.losses - least)[probes.converged].max() <= PROMISE
    assert (probes.reason[~probes.converged] == NOT_CONVERGED).all()
    eta = probes.intercepts + probes.coefficients * x[:, :, None]
    assert np.abs(probes.losses - loss_at(eta, flags[:, None]))[resolved].max() <= 1e-6
    predicted = probes.confusion["tp"] + probes.confusion["fp"]
    unsure = (np.abs(eta) < 1e-4).any(0)
    assert np.array_equal(predicted[resolved & ~unsure.any(1)], (eta > 0).sum(0)[resolved & ~unsure.any(1)])


def test_a_tail_of_silent_rows_does_not_hide_what_a_latents_values_tell(signal):
    """Three silent rows without the class are 10^8 spreads away: they saturate long before values tell."""
    y = 0.5 * signal + np.random.default_rng(8).logistic(size=ROWS) > 2
    x = 1 + 3e-9 * signal
    x[:3], y[:3] = 0, False
    probes = fit_probes(x[:, None], y.astype(int))
    assert probes.losses[0, 1] > independent_loss(x[3:], y[3:]) * (ROWS - 3) / ROWS + 10 * PROMISE
    assert (probes.reason == PENALISED).all()


def test_a_latent_that_tells_a_class_perfectly_ends_without_loss_in_any_unit():
    y = np.arange(ROWS) % 2 == 0
    x, resolved = every_unit(np.where(y, 1.0, -1.0), (np.ones(ROWS),))
    probes = fit_probes(x, y.astype(int))
    assert probes.converged[resolved].all()
    assert probes.losses[probes.converged].max() <= PROMISE
    assert probes.losses.min() >= 0


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_a_ridge_of_ones_own_is_that_of_the_standardised_latent(signal, scale):
    y = signal + np.random.default_rng(8).logistic(size=ROWS) > 0
    x = scale * (3 + signal)
    found, model = fit_probes(x[:, None], y.astype(int), ridge=0.1), independent(x, y, ridge=0.1)
    assert found.coefficients[0, 1] * x.std() == pytest.approx(model.coef_[0, 0], rel=1e-4)
    at_mean = found.intercepts[0, 1] + found.coefficients[0, 1] * x.mean()
    assert at_mean == pytest.approx(model.intercept_[0], abs=1e-4)
    assert found.reason.tolist() == [[PENALISED, PENALISED]]
    assert not found.converged.any()


def test_a_pair_that_the_penalty_holds_back_says_so_and_a_smaller_one_lets_it_go():
    """Half of the rows saturate; the one small value without a hit is left with what the ridge allows."""
    x, y = np.zeros(1000), np.zeros(1000, dtype=int)
    x[:500], x[500], y[501:560] = 1.0, 0.01, 1
    held, free = (fit_probes(x[:, None], y, ridge=ridge) for ridge in (1e-8, 1e-12))
    assert (held.reason[0, 1], free.reason[0, 1]) == (PENALISED, 0)
    assert held.losses[0, 1] - free.losses[0, 1] > 10 * PROMISE


@pytest.mark.parametrize("ridge", [0.0, -1.0, 1.0])
def test_a_ridge_that_cannot_be_used_is_named(ridge):
    with pytest.raises(ConfigError, match=f"ridge={ridge}"):
        fit_probes(np.ones((3, 1)), np.array([0, 1, 1]), ridge=ridge)
