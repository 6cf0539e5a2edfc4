"""Activations and labels of any kind of number are taken, and what is none is refused in one sentence."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy import sparse

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.probe1d import fit_probes

RNG = np.random.default_rng(0)
X = RNG.integers(0, 4, (50, 3)) * (RNG.random((50, 3)) < 0.6)
Y = RNG.integers(0, 2, 50)
EXPECTED = fit_probes(X.astype(np.float64), Y).losses


@pytest.mark.parametrize(
    "x",
    [
        X,
        X.tolist(),
        *(X.astype(kind) for kind in (np.float16, np.longdouble)),
        sparse.csc_array(X.astype(np.uint8)),
        *(torch.from_numpy(X).to(kind) for kind in (torch.int64, torch.bfloat16)),
        torch.from_numpy(X).to_sparse_csr(),
        torch.from_numpy(X).half().to_sparse(),
    ],
    ids=lambda x: f"{type(x).__name__} {getattr(x, 'dtype', '')}",
)
def test_activations_of_any_number_type_are_the_same_activations(x: Any) -> None:
    assert np.allclose(fit_probes(x, Y).losses, EXPECTED, rtol=0, atol=1e-6)


def test_booleans_are_ones_and_zeros() -> None:
    found, expected = fit_probes(X > 0, Y > 0), fit_probes((X > 0).astype(float), Y)
    assert np.array_equal(found.losses, expected.losses)


@pytest.mark.parametrize("labels", [Y > 0, Y.astype(float), torch.from_numpy(Y).bfloat16(), Y.tolist()])
def test_labels_that_are_whole_are_class_numbers(labels: Any) -> None:
    assert np.allclose(fit_probes(X, labels).losses, EXPECTED, rtol=0, atol=1e-6)


def test_flags_may_be_floats() -> None:
    flags = np.stack([Y == 0, Y == 1], 1)
    assert np.allclose(fit_probes(X, flags.astype(float)).losses, EXPECTED, rtol=0, atol=1e-6)


def test_one_row_one_class_and_no_activation_at_all_have_an_answer() -> None:
    for x, y in ((np.ones((1, 2)), [1]), (X, np.zeros(50, dtype=int)), (np.zeros((50, 3)), Y)):
        probes = fit_probes(x, y)
        assert probes.converged.all()
        assert np.isfinite(probes.losses).all()
    assert probes.losses[0] == pytest.approx([-(p * np.log(p)).sum() for p in [np.bincount(Y) / 50]] * 2)


@pytest.mark.parametrize(
    ("x", "labels", "message"),
    [
        (np.zeros(3), Y, r"x_csr=\(3,\): a matrix has rows and latents"),
        (X + 1j, Y, "x_csr=complex128: activations are numbers"),
        (X, Y + 0.5, r"labels=\d.5 in row 0: this is no class number"),
        (X, np.where(Y, np.nan, 0.0), r"labels=nan in row \d+: this is no class number"),
        (X, Y[:, None] * 0.5, r"labels=0.5 in row \d+: this is no class number and no flag"),
        (X, np.zeros((50, 0), dtype=bool), "labels_multihot is bool of shape"),
        (X, Y * 10**12, "at most 1000000 classes"),
        (X * 1e-30, Y, "latent 0 reach 3e-30; scale that latent"),
    ],
)
def test_what_gives_no_numbers_is_refused_in_one_sentence(x: Any, labels: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        fit_probes(x, labels)
