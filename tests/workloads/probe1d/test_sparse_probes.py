"""Probes of k latents together are scikit-learn's on the same latents, and score as it does."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from scipy import sparse
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score, log_loss, roc_auc_score

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.probe1d import fit_sparse_probes

RIDGE = 1e-3
BOUND = 1e-6
"""Of coefficients times spread, and of log odds in units of one plus the largest."""


def activations(offset: float = 0.0, scale: float = 1.0, rows: int = 400):
    """Activations [N, 12] of which some tell one of three classes, and the classes."""
    drawn = np.random.default_rng(0)
    labels = drawn.choice(3, rows, p=[0.8, 0.15, 0.05])
    x = drawn.lognormal(size=(rows, 12)) * (drawn.random((rows, 12)) < 0.3)
    x[:, :3] += drawn.exponential(size=(rows, 3)) * (labels[:, None] == np.arange(3))
    return x * scale + offset, labels


def reference(x, flags, latents, class_weight):
    """scikit-learn's logistic regression on standardised columns, in terms of raw ones."""
    columns = x[:, latents]
    mean, spread = columns.mean(0), columns.std(0)
    model = LogisticRegression(
        C=1 / (RIDGE * len(x)), class_weight=class_weight, solver="newton-cholesky", tol=1e-12, max_iter=1000
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its line search ends at rounding
        model.fit((columns - mean) / spread, flags)
    w = model.coef_[0] / spread
    return w, model.intercept_[0] - w @ mean


@pytest.mark.parametrize("class_weight", [None, "balanced"])
@pytest.mark.parametrize("k", [1, 5])
@pytest.mark.parametrize(("offset", "scale"), [(0, 1), (1e6, 1), (0, 1e-6)])
def test_probes_are_those_of_scikit_learn_on_the_same_latents(k, class_weight, offset, scale):
    x, labels = activations(offset, scale)
    x_val, labels_val = x[300:], labels[300:]
    probes = fit_sparse_probes(
        x[:300], labels[:300], k=k, class_weight=class_weight, x_val=x_val, labels_val=labels_val, ridge=RIDGE
    )
    assert probes.converged.all() and probes.latents.shape == (3, k)
    logits = probes.logits(x_val)
    for number, latents in enumerate(probes.latents):
        flags, held = labels[:300] == number, labels_val == number
        apart = np.abs(x[:300][flags].mean(0) - x[:300][~flags].mean(0))
        assert set(latents) == set(np.argsort(-apart)[:k])
        w, b = reference(x[:300], flags, latents, class_weight)
        expected = x_val[:, latents] @ w + b
        spread = x[:300, latents].std(0)
        assert np.allclose(probes.coefficients[number] * spread, w * spread, atol=BOUND)
        assert np.allclose(logits[:, number], expected, atol=BOUND * (1 + np.abs(expected).max()))
        shown = 1 / (1 + np.exp(-logits[:, number]))
        assert probes.auroc_held_out[number] == pytest.approx(roc_auc_score(held, logits[:, number]))
        assert probes.f1_held_out[number] == pytest.approx(f1_score(held, logits[:, number] > 0))
        assert probes.losses_held_out[number] == pytest.approx(log_loss(held, shown, labels=[0, 1]))


def test_every_kind_of_activations_and_labels_gives_the_same_probes():
    x, labels = activations()
    x = x.astype(np.float32)
    expected = fit_sparse_probes(x, labels, k=3)
    for given, flags in (
        (sparse.csr_array(x), labels),
        (torch.from_numpy(x), torch.from_numpy(labels)),
        (sparse.coo_array(x), labels[:, None] == np.arange(3)),
    ):
        found = fit_sparse_probes(given, flags, k=3)
        assert np.array_equal(found.latents, expected.latents)
        assert np.allclose(found.coefficients, expected.coefficients)
    assert expected.losses_held_out is expected.auroc_held_out is expected.f1_held_out is None


def test_balanced_weights_find_a_rare_class():
    x, labels = activations()
    plain, balanced = (
        fit_sparse_probes(x, labels, k=2, class_weight=weight) for weight in (None, "balanced")
    )
    found = [(probes.logits(x)[labels == 2, 2] > 0).mean() for probes in (plain, balanced)]
    assert found[1] > found[0] + 0.2


def test_rows_of_other_latents_have_no_log_odds():
    x, labels = activations()
    with pytest.raises(ConfigError, match=r"x=\(400, 11\): has other latents. Give rows of 12"):
        fit_sparse_probes(x, labels, k=np.int64(2)).logits(x[:, :11])


def test_latents_of_ones_own_choice_are_taken():
    x, labels = activations()
    chosen = np.array([[0, 4], [1, 5], [2, 6]])
    assert np.array_equal(fit_sparse_probes(x, labels, latents=chosen).latents, chosen)


def test_classes_of_no_row_and_latents_that_are_silent_or_constant_end_somewhere():
    x, labels = activations()
    x[:, 3], x[:, 4] = 0, 7
    probes = fit_sparse_probes(x, labels, k=12, classes=4, x_val=x, labels_val=labels)
    assert probes.converged.all() and np.isfinite(probes.coefficients).all()
    assert (probes.coefficients[3] == 0).all() and probes.intercepts[3] < -5
    assert np.isnan(probes.auroc_held_out[3]) and probes.f1_held_out[3] == 0
    silent = [list(own).index(3) for own in probes.latents]
    assert (probes.coefficients[np.arange(4), silent] == 0).all()


def test_a_class_that_its_latents_separate_has_a_minimum():
    labels = np.arange(100) % 2
    probes = fit_sparse_probes(np.stack([labels, 1 - labels], 1).astype(float), labels, k=2)
    assert probes.converged.all() and (probes.losses < 0.01).all()


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "k and latents are two ways to say one thing"),
        ({"k": 2, "latents": [[0], [1], [2]]}, "Give one of them"),
        ({"k": 0}, "k=0: is out of range"),
        ({"latents": [[0], [1, 2], [3]]}, "does not fit. Give whole numbers"),
        ({"k": 13}, "k=13: is more than the 12 latents"),
        ({"k": 2, "class_weight": "equal"}, "class_weight='equal': is not known"),
        ({"k": 2, "ridge": 0.0}, "ridge=0.0: is out of range. Give a number from 1e-12"),
        ({"k": 2, "x_val": np.ones((1, 12))}, "x_val and labels_val belong together"),
        ({"latents": [[0, 1], [2, 2], [3, 4]]}, r"latents=\[2, 2\]: of class 1 are not k different numbers"),
        ({"latents": [[0], [12], [1]]}, "from 0 to 11"),
    ],
)
def test_what_cannot_be_fitted_is_refused_by_name(given, says):
    with pytest.raises(ConfigError, match=says):
        fit_sparse_probes(*activations(), **given)
