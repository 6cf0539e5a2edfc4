"""All kernels give the sums of the definition, padding included, whatever shape a bucket has."""

from __future__ import annotations

import shutil
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy.special import expit, log_expit

from perfsweep.workloads.probe1d.counters import Counts
from perfsweep.workloads.probe1d.data.problem import Csr
from perfsweep.workloads.probe1d.maths import buckets as layouts
from perfsweep.workloads.probe1d.maths.buckets import Bucket, bucket_edges, bucket_width, build_layout, to_csc
from perfsweep.workloads.probe1d.maths.event_sums import CompiledKernel, EagerKernel
from perfsweep.workloads.probe1d.maths.precision import BLOCK_EVENTS, PRECISIONS

# A float32 event is good to 1e-7; up to 128 are added one after the other, and errors partly cancel.
BOUND = {"f32": 3e-6, "f64": 1e-12, "f32acc64": 1e-6, "block": 3e-6}


def reference(x, b, w):
    """m0, m1, a0, a1, a2 and softplus sums of every pair, [6, r, c], in numpy."""
    eta = b[..., None] + w[..., None] * x[:, None, :]
    mu, s = expit(eta), expit(eta) * expit(-eta)
    terms = (mu, mu * x[:, None], s, s * x[:, None], s * x[:, None] ** 2, -log_expit(-eta))
    return np.stack([term.sum(-1) for term in terms])


def bucket_and_pairs(rows, width, classes, dtype, device="cpu"):
    rng = np.random.default_rng(rows * width + classes)
    x = rng.lognormal(size=(rows, width)) * np.where(rng.random((rows, width)) < 0.1, -1, 1)
    x[:, width * 3 // 4 :] = 0
    b, w = 3 * rng.normal(size=(rows, classes)), rng.normal(size=(rows, classes))
    b[0, 0], w[0, 0] = 80.0, 40.0  # far tails must neither overflow nor become NaN
    x, b, w = (torch.from_numpy(part).to(dtype) for part in (x, b, w))
    expected = reference(*(part.double().numpy() for part in (x, b, w)))
    x, b, w = (part.to(device) for part in (x, b, w))
    return Bucket(5, 5 + rows, x), torch.arange(rows, device=device), b, w, expected


def worst(found, expected):
    size = np.abs(expected).max(axis=(1, 2), keepdims=True)
    found = np.stack([part.double().cpu().numpy() for part in found])
    return float((np.abs(found - expected) / size).max())


SHAPES = [(7, 16, 5), (3, 48, 1), (4, 1280, 3), (1, 640, 1), (2, 112, 40)]
NATIVE = pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")


def kernel_of(name, precision):
    if name == "native":
        from perfsweep.workloads.probe1d.kernels.native import NativeKernel

        return NativeKernel(PRECISIONS[precision], Counts())
    return {"eager": EagerKernel, "compiled": CompiledKernel}[name](PRECISIONS[precision], Counts())


def assert_sums_are_those_of_the_definition(name, precision, shape):
    kernel = kernel_of(name, precision)
    bucket, row, b, w, expected = bucket_and_pairs(*shape, PRECISIONS[precision].compute)
    assert worst(kernel(bucket, row, b, w, "loss"), expected) < BOUND[precision]
    assert worst(kernel(bucket, row, b, w, "hessian"), expected[:5]) < BOUND[precision]
    splits = [0, row.numel()]
    alone = kernel.over_buckets((bucket,), splits, row + bucket.first, b, w, "value")
    assert worst(alone, expected[5:]) < BOUND[precision]


@pytest.mark.parametrize("name", ["eager", pytest.param("native", marks=NATIVE)])
@pytest.mark.parametrize("precision", ["f32", "f64", "block"])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_kernel_gives_the_sums_of_the_definition(name, precision, shape):
    assert_sums_are_those_of_the_definition(name, precision, shape)


@NATIVE
@pytest.mark.slow
@pytest.mark.parametrize(("precision", "shape"), [("f32", SHAPES[0]), ("block", SHAPES[2])])
def test_generated_code_gives_the_sums_of_the_definition(precision, shape):
    """Of a bucket as short as they come, and of one that is longer than a block of events."""
    assert_sums_are_those_of_the_definition("compiled", precision, shape)


@NATIVE
def test_the_native_kernel_evaluates_stored_float32_in_float64():
    from perfsweep.workloads.probe1d.kernels.native import NativeKernel

    bucket, row, b, w, _ = bucket_and_pairs(6, 48, 4, torch.float32)
    expected = reference(*(part.double().numpy() for part in (bucket.x, b, w)))
    found = NativeKernel(PRECISIONS["f64"], Counts())(bucket, row, b.double(), w.double(), "loss")
    assert worst(found, expected) < 1e-12


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["eager", "compiled", "triton"])
@pytest.mark.parametrize("precision", ["f32", "f64", "block"])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_kernel_gives_the_sums_of_the_definition_on_a_gpu(name, precision, shape):
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    if name == "triton":
        from perfsweep.workloads.probe1d.kernels.triton_kernel import TritonKernel

        kernel = TritonKernel(PRECISIONS[precision], Counts())
    else:
        kernel = kernel_of(name, precision)
    bucket, row, b, w, expected = bucket_and_pairs(*shape, PRECISIONS[precision].compute, "cuda")
    assert worst(kernel(bucket, row, b, w, "loss"), expected) < BOUND[precision]


@pytest.mark.parametrize("seed", range(2))
def test_buckets_hold_every_latent_once_and_pad_little(seed):
    rng = np.random.default_rng(seed)
    counts = np.sort(np.exp(rng.normal(4, 1.6, 300)).astype(int) + 1).tolist()
    edges = bucket_edges(counts)
    assert edges[-1] == len(counts)
    assert all(low < high for low, high in pairwise(edges))
    for low, high in zip([0, *edges], edges, strict=False):
        width = bucket_width(counts[high - 1])
        assert width >= counts[high - 1]
        assert width % (16 if width <= BLOCK_EVENTS else 128) == 0
        # A row wastes a fifth of its width at most, or what rounding up to whole lanes costs.
        assert counts[low] >= min(0.8 * counts[high - 1], width - 16) - 1
    padded = sum(
        bucket_width(counts[high - 1]) * (high - low) for low, high in zip([0, *edges], edges, strict=False)
    )
    assert padded / sum(counts) < 1.25


def random_csr(rows=50, latents=9, seed=0):
    rng = np.random.default_rng(seed)
    dense = rng.lognormal(size=(rows, latents)) * (rng.random((rows, latents)) < rng.random(latents))
    row, column = np.nonzero(dense)
    indptr = np.concatenate([[0], np.cumsum(np.count_nonzero(dense, axis=1))])
    values = torch.from_numpy(dense[row, column].astype(np.float32))
    return dense, Csr(torch.from_numpy(indptr), torch.from_numpy(column), values, latents)


def test_the_layout_holds_the_values_of_each_latent(monkeypatch):
    dense, x = random_csr()
    layout = build_layout(to_csc(x), torch.float32)
    for bucket in layout.buckets:
        for number, row in enumerate(bucket.x):
            stored = dense[:, int(layout.order[bucket.first + number])]
            assert np.allclose(row[row != 0], np.sort(stored[stored != 0].astype(np.float32)))
    assert layout.buckets[-1].last == x.latents
    assert float(layout.slots.sum()) == layout.padded


def test_sorting_in_pieces_equals_sorting_at_once(monkeypatch):
    _, x = random_csr(rows=80, seed=3)
    whole = to_csc(x, with_rows=True)
    monkeypatch.setattr(layouts, "SORT_EVENTS", 37)
    pieces = layouts._to_csc_device(x, with_rows=True)
    assert torch.equal(whole.indptr, pieces.indptr)
    assert torch.equal(whole.values, pieces.values)
    assert torch.equal(whole.rows, pieces.rows)
