"""Sums over events: every walk over them adds up their terms as a loop does, in every precision."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from perfsweep.workloads.probe1d.counters import Counts
from perfsweep.workloads.probe1d.data.problem import Csr
from perfsweep.workloads.probe1d.maths.buckets import (
    Bucket,
    EventChunks,
    RebuiltChunks,
    bucket_width,
    build_layout,
    to_csc,
)
from perfsweep.workloads.probe1d.maths.event_sums import EagerKernel, _flat_sums
from perfsweep.workloads.probe1d.maths.precision import BLOCK_EVENTS, PRECISIONS
from perfsweep.workloads.probe1d.maths.sums_by_row import CscEvaluator, LabelFreeCsr, LabelledCsr

ROWS, PAIRS = 3, 5


@pytest.mark.parametrize("longest", [BLOCK_EVENTS // 2, BLOCK_EVENTS, 3 * BLOCK_EVENTS])
@pytest.mark.parametrize("precision", PRECISIONS.values(), ids=lambda one: one.name)
def test_pairs_in_one_list_have_the_sums_that_pieces_have(precision, longest: int) -> None:
    generator = torch.Generator().manual_seed(0)
    width = bucket_width(longest)
    x = torch.randn(ROWS, width, generator=generator, dtype=torch.float64)
    row = torch.randint(0, ROWS, (PAIRS,), generator=generator)
    b, w = torch.randn(2, PAIRS, generator=generator, dtype=torch.float64).to(precision.sums)
    eager = EagerKernel(precision, Counts())(Bucket(0, ROWS, x), row, b[:, None], w[:, None], "loss")
    flat = _flat_sums("loss", precision)(x, row, b, w)
    assert all(torch.equal(one[:, 0], other) for one, other in zip(eager, flat, strict=True))


# A latent without events; others with one, three and 18 of the 20 rows, in an order of their own.
COUNTS, N, CLASSES = [3, 0, 18, 1], 20, 5
CHUNK, CHUNKS = 8, 3


def given() -> tuple[Csr, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Activations, the same dense [N, L], labels [N, C], and b, w [L, C]; float64."""
    make = torch.Generator().manual_seed(0)
    dense = torch.randn(N, len(COUNTS), generator=make, dtype=torch.float64)
    for latent, count in enumerate(COUNTS):
        dense[torch.randperm(N, generator=make)[count:], latent] = 0
    row, column = dense.nonzero(as_tuple=True)
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), (dense != 0).sum(1).cumsum(0)])
    labels = (torch.rand(N, CLASSES, generator=make) < 0.4).double()
    b, w = torch.randn(2, len(COUNTS), CLASSES, generator=make, dtype=torch.float64)
    return Csr(indptr, column, dense[row, column], len(COUNTS)), dense, labels, b, w


def by_hand(padding: list[int], labelled: bool) -> dict[str, torch.Tensor]:
    """Sums [L, C] over events, and over so many zeros of each latent, which have no label."""
    _, dense, labels, b, w = given()
    found: dict[str, list[torch.Tensor]] = {}
    for latent, zeros in enumerate(padding):
        there = dense[:, latent] != 0
        x = torch.cat([dense[there, latent], torch.zeros(zeros, dtype=torch.float64)])[:, None]
        y = torch.cat([labels[there], torch.zeros(zeros, CLASSES, dtype=torch.float64)])
        eta = b[latent] + w[latent] * x
        mu = eta.sigmoid()
        s = mu * (1 - mu)
        terms = {"m0": mu, "a0": s, "a1": s * x, "a2": s * x * x}
        if labelled:
            terms |= {"residual": (mu - y) * x, "labels": y, "loss": F.softplus(eta) - y * eta}
        else:
            terms |= {"m1": mu * x, "loss": F.softplus(eta)}
        for name, term in terms.items():
            found.setdefault(name, []).append(term.sum(0))
    return {name: torch.stack(rows) for name, rows in found.items()}


@pytest.mark.parametrize("form", ["labelled", "label-free", "by latent"])
@pytest.mark.parametrize("with_loss", [True, False])
@pytest.mark.parametrize("precision", [PRECISIONS[name] for name in ("f32", "f64", "f32acc64")])
def test_every_walk_adds_up_the_terms_of_all_events(form: str, with_loss: bool, precision: Any) -> None:
    x, _, labels, b, w = given()
    counts, order, padding = Counts(), torch.arange(len(COUNTS)), [0] * len(COUNTS)
    made: Any
    if form == "labelled":
        made = LabelledCsr(x, labels, RebuiltChunks(x, CHUNK, Counts()), precision, False, counts)
    elif form == "label-free":
        made = LabelFreeCsr(x, EventChunks(x, CHUNK), precision, False, counts)
    else:
        layout = build_layout(to_csc(x), precision.compute)
        order = layout.order
        padding = [int(layout.slots[order == one]) - count for one, count in enumerate(COUNTS)]
        padding[COUNTS.index(0)] = 0
        made = CscEvaluator(layout, EagerKernel(precision, Counts()), precision, counts)
    made.begin(torch.arange(CLASSES))
    block: Any = SimpleNamespace(latent=torch.arange(len(COUNTS)))
    found = made.sums(block, b[order].to(precision.sums), w[order].to(precision.sums), with_loss)
    expected = by_hand(padding, form == "labelled")
    if not with_loss and form != "labelled":
        assert expected.pop("loss") is not None and found.loss is None
    assert {name for name, one in vars(found).items() if one is not None} == expected.keys()
    near = {"atol": 1e-12, "rtol": 1e-12} if precision.name == "f64" else {"atol": 1e-5, "rtol": 1e-5}
    for name, sums in expected.items():
        assert getattr(found, name).dtype == precision.sums
        torch.testing.assert_close(getattr(found, name).double(), sums[order], **near)
    # Kernels are those that a GPU has for each chunk, and sums those that are scattered, or a bucket has.
    events, by_chunk = (sum(COUNTS) + sum(padding)) * CLASSES, {"labelled": 28, "label-free": 22}.get(form, 0)
    mixed = {"labelled": 7, "label-free": 5 + with_loss}.get(form, 0) * CHUNKS or 2
    assert counts.values["event_evaluations"] == events
    assert counts.values["events_f64"] == events * (precision.name == "f64")
    assert counts.values["kernel_launches"] == CHUNKS * by_chunk
    assert counts.values["sums_acc64"] == mixed * (precision.name == "f32acc64")
    assert counts.values["bytes_cast"] == 4 * sum(COUNTS) * (bool(by_chunk) and precision.name != "f64")
