"""Generated and trained activations have the statistics that the solvers are measured on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from tiers import longer

from perfsweep.workloads.probe1d.config import DICTIONARIES, GENERATED
from perfsweep.workloads.probe1d.data import dictionary, generator, problem
from perfsweep.workloads.probe1d.data.problem import constants


def stats(data):
    return constants(data.x, data.labels, torch.arange(data.labels.classes))


@pytest.mark.parametrize("preset", ["test", *longer("profile", "nfail", "demo")])
def test_a_preset_has_its_density_and_its_share_of_dead_latents(preset):
    shape = GENERATED[preset]
    data = generator.generate(shape, 0)
    found = stats(data)
    # Preferred classes add to the density; how many rows they fill depends on a preset's few images.
    assert data.x.nnz / shape.rows == pytest.approx(shape.density, rel=0.25)
    silent = float((found.count == 0).double().mean())
    # Besides dead ones, rare latents expect three rows and one in twenty is silent; so are the slowest.
    error = 3.5 * np.sqrt(shape.dead / shape.latents)
    assert shape.dead - error <= silent <= shape.dead + 0.06 + error
    empty = (found.positives == 0).sum()
    assert empty >= shape.empty


@pytest.mark.workloads
def test_a_quarter_of_the_latents_is_scaled_below_one_and_a_shift_of_two_removes_them():
    shape = GENERATED["demo"]
    small = stats(generator.generate(shape, 0)).scale < 1
    assert 0.2 < small.double().mean() < 0.32
    shifted = stats(generator.generate(replace(shape, shift=2.0), 0)).scale < 1
    assert shifted.double().mean() < 0.02


@pytest.mark.parametrize(
    ("preset", "events", "held_out", "mean"),
    [
        ("test", 8580, 844, 1.6151428),
        ("profile", 66784, 6554, 1.7609702),
        pytest.param("nfail", 77081, 7887, 1.6904669, marks=pytest.mark.workloads),
    ],
)
def test_the_problem_of_a_preset_stays_the_one_that_was_measured(preset, events, held_out, mean):
    shape = GENERATED[preset]
    data = generator.generate(shape, 0, name=preset)
    assert generator.generate(shape, 1).x.nnz != events
    assert (data.name, data.x.nnz, data.x_val.nnz) == (preset, events, held_out)
    assert (data.x.rows, data.x.latents, data.x_val.rows) == (shape.rows, shape.latents, shape.rows // 10)
    assert float(data.x.values.double().mean()) == pytest.approx(mean, rel=1e-6)
    assert data.labels.classes == data.labels_val.classes == shape.classes


@pytest.mark.workloads
def test_the_device_generator_follows_the_same_law():
    shape = GENERATED["demo"]
    rng = np.random.default_rng(0)
    latents = generator.draw_latents(shape, rng)
    ids = generator.draw_labels(shape, rng, shape.rows)
    one = generator._sample_numpy(shape, latents, ids, np.random.default_rng(1), "cpu")
    two = generator._sample_torch(shape, latents, ids, np.random.default_rng(2), "cpu")
    # Two binomial draws of 270 thousand: one part in two hundred is five standard errors.
    assert one.nnz == pytest.approx(two.nnz, rel=0.01)
    assert float(one.values.mean()) == pytest.approx(float(two.values.mean()), rel=0.05)
    assert two.indptr[-1] == two.nnz


def test_constants_summed_in_pieces_equal_those_summed_at_once(monkeypatch):
    data = generator.generate(GENERATED["test"], 0)
    whole = stats(data)
    monkeypatch.setattr(problem, "PIECE_EVENTS", 999)
    pieces = stats(data)
    for name in ("count", "sum_x", "deviation", "hits", "hit_sum", "scale", "positives"):
        # The same float64 additions in another order.
        assert torch.allclose(getattr(whole, name), getattr(pieces, name), rtol=1e-12)
    assert len(list(problem.row_pieces(data.x, data.labels))) == -(-data.x.nnz // 999)


@pytest.mark.workloads
def test_a_trained_dictionary_explains_its_patches(cache_dir):
    found = dictionary.codes(DICTIONARIES["dict_small"], cache_dir)
    assert len(found["digit"]) == 16_173
    assert 0.02 < float(found["unexplained"]) < 0.1


@pytest.fixture
def small_dictionary(monkeypatch):
    config = dictionary.DictionaryConfig(stride=4, latents=24, k=3, steps=60)
    monkeypatch.setitem(DICTIONARIES, "dict_small", config)
    return config


def test_training_is_repeated_exactly_and_read_from_the_cache_afterwards(
    small_dictionary, tmp_path, monkeypatch
):
    first = dictionary.codes(small_dictionary, tmp_path)
    other = dictionary.codes(small_dictionary, tmp_path / "another" / "folder")
    assert np.array_equal(first["values"], other["values"])
    monkeypatch.setattr(dictionary, "train", None)  # a second training would fail
    assert np.array_equal(dictionary.codes(small_dictionary, tmp_path)["values"], first["values"])
    data = dictionary.dictionary_data("dict_small", tmp_path)
    assert data.x_val is not None and data.x.indptr.diff().max() <= small_dictionary.k
    held = dictionary.held_out_images(first["image"].max() + 1)[first["image"]]
    assert data.x_val.rows == held.sum() and 0.08 < held.mean() < 0.12
    assert not set(first["image"][held]) & set(first["image"][~held]), "no image is split"
    assert data.labels.classes == data.labels_val.classes == 10
