"""Counts are exact integers."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from perfsweep.workloads.probe1d.counters import Counts
from perfsweep.workloads.probe1d.data.problem import Csr, Labels
from perfsweep.workloads.probe1d.maths import confusion
from perfsweep.workloads.probe1d.maths.buckets import build_layout, to_csc


@st.composite
def counted_problems(draw):
    """A small dense matrix with repeated values and signs, multi-hot labels, some parameters w = 0."""
    rows, latents, classes = draw(st.integers(1, 12)), draw(st.integers(1, 4)), draw(st.integers(1, 3))
    values = st.sampled_from([0.0, 0.0, -2.0, -0.5, 0.5, 1.0, 3.0])
    dense = np.array(draw(st.lists(values, min_size=rows * latents, max_size=rows * latents))).reshape(
        rows, latents
    )
    flags = draw(st.lists(st.booleans(), min_size=rows * classes, max_size=rows * classes))
    numbers = st.sampled_from([-3.0, -1.0, -0.4, 0.0, 0.3, 1.0, 2.5])
    b, w = (
        np.array(draw(st.lists(numbers, min_size=latents * classes, max_size=latents * classes))).reshape(
            latents, classes
        )
        for _ in range(2)
    )
    return dense, np.array(flags).reshape(rows, classes), b, w


def as_csr(dense):
    row, column = np.nonzero(dense)
    indptr = np.concatenate([[0], np.cumsum(np.count_nonzero(dense, axis=1))])
    values = torch.from_numpy(dense[row, column].astype(np.float32))
    return Csr(torch.from_numpy(indptr), torch.from_numpy(column), values, dense.shape[1])


NATIVE = pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")


@NATIVE
@settings(deadline=None, max_examples=60)
@given(counted_problems(), st.sampled_from([torch.float32, torch.float64]))
def test_counts_of_the_native_kernel_are_those_of_a_loop_over_all_rows(problem, dtype):
    from perfsweep.workloads.probe1d.kernels.native import NativeCounts

    dense, multi, b, w = problem
    assert_counts(dense, multi, b, w, dtype, NativeCounts)


@NATIVE
def test_one_class_a_row_is_counted_as_flags_are_whatever_the_order_of_columns():
    from perfsweep.workloads.probe1d.kernels.native import NativeCounts

    rng = np.random.default_rng(0)
    dense = rng.normal(size=(60, 5)) * (rng.random((60, 5)) < 0.4)
    dense[:, 2] = 0
    ids, x = rng.integers(0, 4, 60), as_csr(dense)
    b, w = (torch.from_numpy(rng.normal(size=(5, 2))) for _ in range(2))
    grid, columns = torch.tensor([0, 2, 3]), torch.tensor([2, 0])
    layout = build_layout(to_csc(x), torch.float32)
    events = layout_counts(x, layout)
    found = [
        NativeCounts(x, labels, grid, layout, events, Counts())(
            columns, torch.tensor([(ids == 3).sum(), (ids == 0).sum()]), b, w
        )
        for labels in (
            Labels(4, ids=torch.from_numpy(ids)),
            Labels(4, multi=torch.from_numpy(ids[:, None] == np.arange(4))),
        )
    ]
    for name in ("tp", "fp", "tn", "fn"):
        assert torch.equal(getattr(found[0], name), getattr(found[1], name))
    fires = b[:, 0].numpy() + w[:, 0].numpy() * dense > 0
    assert found[0].tp[:, 0].tolist() == (fires & (ids == 3)[:, None]).sum(0).tolist()
    assert found[0].fp[:, 0].tolist() == (fires & (ids != 3)[:, None]).sum(0).tolist()


def layout_counts(x, layout):
    return torch.bincount(x.indices, minlength=x.latents)[layout.order].double()


def assert_counts(dense, multi, b, w, dtype, kind):
    x, labels = as_csr(dense), Labels(multi.shape[1], multi=torch.from_numpy(multi))
    grid = torch.arange(multi.shape[1])
    layout = build_layout(to_csc(x), dtype)
    counter = kind(x, labels, grid, layout, layout_counts(x, layout), Counts())
    found = counter(grid, torch.from_numpy(multi.sum(0)), torch.from_numpy(b), torch.from_numpy(w))
    # Neither these values nor their sums are rounded.
    fires = (b[None] + w[None] * dense[:, :, None]) > 0
    truth = np.broadcast_to(multi[:, None, :], fires.shape)
    expected = {"tp": fires & truth, "fp": fires & ~truth, "tn": ~fires & ~truth, "fn": ~fires & truth}
    near = np.isclose(b[None] + w[None] * dense[:, :, None], 0, atol=1e-12).any(0)  # 0.3 and 0.4 are rounded
    for name, flags in expected.items():
        assert (getattr(found, name).numpy() == flags.sum(0))[~near].all()


@settings(deadline=None, max_examples=60)
@given(counted_problems())
def test_binary_search_counts_what_a_loop_over_all_rows_counts(problem):
    dense, multi, b, w = problem
    x, labels = as_csr(dense), Labels(multi.shape[1], multi=torch.from_numpy(multi))
    grid = torch.arange(multi.shape[1])
    events = confusion.sort_events(x, labels, grid)
    parameters = (torch.from_numpy(b).float(), torch.from_numpy(w).float())
    found = confusion.confusion_by_search(
        events, grid, x.rows, torch.from_numpy(multi.sum(0)), *parameters, Counts()
    )
    for latent in range(dense.shape[1]):
        for label in range(multi.shape[1]):
            fires = b[latent, label] + w[latent, label] * dense[:, latent] > 0
            truth = multi[:, label]
            expected = (
                (fires & truth).sum(),
                (fires & ~truth).sum(),
                (~fires & ~truth).sum(),
                (~fires & truth).sum(),
            )
            got = tuple(int(getattr(found, name)[latent, label]) for name in ("tp", "fp", "tn", "fn"))
            # A datum within rounding of the threshold may fall on either side.
            if not np.isclose(b[latent, label] + w[latent, label] * dense[:, latent], 0, atol=1e-5).any():
                assert got == expected


def test_latents_that_float32_tells_too_little_of_are_counted_event_by_event_to_the_same_end():
    rng = np.random.default_rng(0)
    dense = rng.normal(size=(40, 4)) * (rng.random((40, 4)) < 0.5)
    labels, x = Labels(3, ids=torch.from_numpy(rng.integers(0, 3, 40))), as_csr(dense)
    b, w = (torch.from_numpy(rng.normal(size=(4, 2))) for _ in range(2))
    grid, columns = torch.tensor([0, 2, 1]), torch.tensor([2, 0])
    positives = torch.stack([(labels.ids == number).sum() for number in (1, 0)])
    one, other = (
        confusion.SearchedConfusion(x, labels, grid, Counts(), torch.tensor(ill, dtype=torch.int64))
        for ill in ([], [3, 1])
    )
    found, exact = (counted(columns, positives, b, w) for counted in (one, other))
    assert all(torch.equal(getattr(found, name), getattr(exact, name)) for name in ("tp", "fp", "tn", "fn"))


def test_a_search_that_ignores_the_sign_of_the_slope_miscounts():
    dense = np.array([[1.0], [2.0], [3.0]])
    x, labels = as_csr(dense), Labels(1, multi=torch.tensor([[True], [False], [True]]))
    events = confusion.sort_events(x, labels, torch.tensor([0]))
    b, w = torch.tensor([[1.5]]), torch.tensor([[-1.0]])
    right = confusion.confusion_by_search(events, torch.tensor([0]), 3, torch.tensor([2]), b, w, Counts())
    assert (right.tp.item(), right.fp.item()) == (1, 0)
    start, stop = torch.tensor([[0]]), torch.tensor([[3]])
    assert confusion.fired(events.values, start, stop, b, w).item() == 1
    assert confusion.fired(events.values, start, stop, -b, -w).item() == 2
