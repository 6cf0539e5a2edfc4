"""Files in the documented format work unchanged; mistakes in them are named with the remedy."""

from __future__ import annotations

import numpy as np
import pytest

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.probe1d.config import Probe1DConfig
from perfsweep.workloads.probe1d.data import npz
from perfsweep.workloads.probe1d.workload import Probe1D


@pytest.fixture
def dense():
    rng = np.random.default_rng(1)
    return rng.lognormal(size=(30, 4)) * (rng.random((30, 4)) < 0.5)


@pytest.fixture
def labels():
    return np.random.default_rng(2).integers(0, 3, 30)


def test_multi_hot_labels_and_held_out_rows_are_read(write_problem, dense):
    multi = np.random.default_rng(3).random((30, 5)) < 0.3
    part = write_problem(dense[:10], multi[:10], name="part.npz")
    with np.load(part) as stored:
        held_out = {f"{name}_val": stored[name] for name in stored.files}
    data = npz.load(write_problem(dense, multi, **held_out))
    for x, labels, rows in ((data.x, data.labels, 30), (data.x_val, data.labels_val, 10)):
        found = np.zeros((rows, 4))
        found[x.row_index().numpy(), x.indices.numpy()] = x.values.numpy()
        assert np.array_equal(found, dense[:rows].astype(np.float32))
        assert np.array_equal(labels.multi.numpy(), multi[:rows]) and labels.classes == 5
        assert (x.rows, x.latents) == (rows, 4) and labels.ids is None


MISTAKES = {
    "an array is missing": ({"values": None}, "values is missing"),
    "an array of another format": ({"data": np.zeros(3)}, "array data is unknown"),
    "held-out labels alone": ({"labels_val": np.zeros(3, dtype=int)}, "indptr_val is missing"),
    "no shape": ({"shape": None}, "shape is missing"),
    "no labels": ({"labels": None}, "neither is there"),
    "both kinds of labels": ({"labels_multihot": np.zeros((30, 2), dtype=bool)}, "both are there"),
    "a label below zero": ({"labels": np.full(30, -1)}, "class -1 in row 0"),
    "labels of the wrong length": ({"labels": np.zeros(29, dtype=int)}, "each of 30 rows"),
    "values as integers": ({"values": np.ones(3, dtype=int)}, "float32"),
    "zero rows": ({"shape": np.array([0, 4])}, "at least one row"),
    "a short row pointer": ({"indptr": np.zeros(5, dtype=np.int64)}, "rows \\+ 1"),
    "a falling row pointer": ({"indptr": np.array([0, 5, *([3] * 29)])}, "wrong at row 1"),
    "a latent out of range": ({"shape": np.array([30, 3])}, "from 0 to 2"),
    "a shape of one number": ({"shape": np.array([30])}, r"shape has shape \(1,\) and type int64; give two"),
    "a shape of fractions": ({"shape": np.array([30.0, 4.0])}, "type float64; give two integers"),
    "no latent": ({"shape": np.array([30, 0])}, r"shape is \(30, 0\); at least one row and one latent"),
    "a pointer that begins late": ({"indptr": np.array([1, *range(2, 32)])}, "indptr is wrong at row 0"),
    "a pointer that ends early": ({"indptr": np.arange(31)}, "indptr is wrong at row 30; it must rise"),
    "values and indices of different lengths": (
        {"values": np.ones(3, dtype=np.float32)},
        r"indices has \d+ entries and values 3; make them equal",
    ),
    "values in two dimensions": ({"values": np.ones((3, 1), dtype=np.float32)}, "with 2 dimensions"),
    "labels as fractions": ({"labels": np.zeros(30)}, r"labels is float64 of shape \(30,\); give one class"),
    "far too many classes": ({"labels": np.full(30, 10**6)}, "holds class 1000000, and every class"),
    "flags of other rows": (
        {"labels": None, "labels_multihot": np.zeros((29, 2), dtype=bool)},
        r"labels_multihot is bool of shape \(29, 2\); give booleans of shape \(30, classes\)",
    ),
}


@pytest.mark.parametrize(("replaced", "message"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_in_a_file_is_named_when_the_plan_is_made(write_problem, dense, labels, replaced, message):
    path = write_problem(dense, labels, **replaced)
    with pytest.raises(ConfigError, match=message) as refusal:
        Probe1D.planned(Probe1DConfig(data=str(path)))
    assert str(refusal.value).startswith(f"workload.data={path}: ")


@pytest.mark.parametrize(
    ("size", "says"), [(1.01e15, "reach 1.01e\\+15"), (0.99e-15, "reach 9.9e-16"), (1e15, "")]
)
def test_values_whose_squares_float32_cannot_hold_are_refused(write_problem, labels, size, says):
    dense = np.zeros((30, 3))
    dense[4, 1], dense[5, 1] = -size, size / 2 if says else 2e-15
    path = write_problem(dense, labels)
    if not says:
        assert npz.load(path, classes=4).labels.classes == 4
        return
    with pytest.raises(ConfigError, match=f"values of latent 1 {says}; scale that latent to between 1e-15"):
        npz.load(path)


def test_held_out_rows_of_other_latents_are_refused(write_problem, dense, labels):
    held_out = {f"{name}_val": one for name, one in np.load(write_problem(dense, labels)).items()}
    path = write_problem(dense, labels, **{**held_out, "shape_val": np.array([30, 5])})
    with pytest.raises(ConfigError, match="shape_val has 5 latents and shape has 4; both parts need"):
        npz.load(path)
    del held_out["shape_val"]
    assert npz.load(write_problem(dense, labels, **held_out)).x_val.latents == 4


def test_a_class_beyond_the_configured_ones_is_named_with_its_row(write_problem, dense, labels):
    labels[7] = 9
    with pytest.raises(ConfigError, match=r"class 9 in row 7; classes go from 0 to 3"):
        npz.load(write_problem(dense, labels), classes=4)


def test_labels_with_other_values_than_booleans_are_refused(write_problem, dense):
    multi = np.zeros((30, 2), dtype=np.int64)
    multi[4, 0], multi[11, 1] = 1, 3
    with pytest.raises(ConfigError, match="in row 11"):
        npz.load(write_problem(dense, multi))


def test_a_file_that_is_not_there_and_one_that_is_no_archive_are_told_apart(tmp_path):
    (tmp_path / "text.npz").write_text("hello")
    for name, says in (("nothing", "no such file"), ("text", "cannot be read as")):
        with pytest.raises(ConfigError, match=says):
            Probe1D.planned(Probe1DConfig(data=str(tmp_path / f"{name}.npz")))


def test_values_keep_their_digits_until_they_are_placed(write_problem, dense, labels):
    path = write_problem(dense, labels, values=dense[np.nonzero(dense)])
    values = npz.load(path).x.values.numpy()
    assert values.dtype == np.float64
    assert np.array_equal(np.sort(values), np.sort(dense[dense != 0]))


def test_a_damaged_archive_and_a_lone_array_are_named(write_problem, dense, labels, tmp_path):
    path = write_problem(dense, labels)
    whole = path.read_bytes()
    packed = tmp_path / "packed.npz"
    np.savez_compressed(packed, values=np.random.default_rng(0).random(2000))
    damaged = bytearray(packed.read_bytes())
    damaged[200:400] = bytes(200)
    np.save(tmp_path / "lone.npy", dense)
    for content in (whole[: len(whole) // 2], bytes(damaged), (tmp_path / "lone.npy").read_bytes()):
        path.write_bytes(content)
        with pytest.raises(ConfigError, match="cannot be read as"):
            npz.load(path)


def test_empty_classes_and_classes_without_negatives_are_solved(solve, write_problem, dense):
    path = write_problem(dense, np.zeros(30, dtype=int))
    numbers = solve({"solver": "newton"}, data=str(path), classes=3).evidence().numbers
    assert numbers["max_gradient"] <= 1.01e-6
    assert numbers["unsolved_pairs"] == 0
