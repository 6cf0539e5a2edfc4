"""Counters: what they count, that they change nothing, and how they live with torch.compile."""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from counted import BATCH, FLOAT, HIDDEN, INPUT, OUTPUT, count, network, rows, train
from torch import nn

from perfsweep.pipelines.trial.counters import Counting, CountingGc, _SavedBytes

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize(
    ("work", "reads"),
    [
        (lambda x, mask: x.cpu(), 1),
        (lambda x, mask: x.to("cpu", non_blocking=True), 1),
        (lambda x, mask: torch.empty(4, 4).copy_(x), 1),
        (lambda x, mask: x.index_put_((mask,), torch.zeros((), device="cuda")), 1),
        (lambda x, mask: x + 1, 0),
        (lambda x, mask: x.double(), 0),
    ],
)
def test_copies_off_a_device_and_masks_on_it_are_host_reads(work: Callable[..., object], reads: int) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode  # stands in for a GPU: tensors without memory

    with FakeTensorMode():
        x, mask = torch.empty(4, 4, device="cuda"), torch.empty(4, dtype=torch.bool, device="cuda")
        assert count(lambda: work(x, mask))["host_reads"] == reads


def test_saved_bytes_are_those_autograd_keeps() -> None:
    data, hidden, output = BATCH * INPUT, BATCH * HIDDEN, BATCH * OUTPUT
    # The first layer and the square keep their inputs; ReLU and the second layer keep the same storage.
    assert count(lambda: train(network(), rows()))["saved_bytes"] == FLOAT * (data + hidden + output)
    weight = nn.Parameter(torch.randn(INPUT, INPUT), requires_grad=False)
    leaf = rows().requires_grad_()
    # An own leaf, a parameter and views of it are held by somebody else already.
    assert count(lambda: (leaf @ weight.t()).sum().backward())["saved_bytes"] == 0


def test_a_storage_counts_once_while_some_of_it_is_kept() -> None:
    saved, storage = _SavedBytes(), torch.ones(4)
    first, second = saved.pack(storage), saved.pack(storage[:2])
    assert saved.unpack(first) is storage and saved.unpack("other") == "other"
    del first
    third = saved.pack(storage)
    assert saved.total == 16
    del second, third
    sparse, fourth = torch.eye(2).to_sparse(), saved.pack(storage)
    assert (saved.total, saved.pack(sparse) is sparse) == (32, True)
    del fourth


class Varied(nn.Module):
    """Layers whose kernels, random draws or decompositions could be changed by a mode."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, 8)
        self.convolve = nn.Conv1d(8, 8, 3, padding=1)
        self.norm = nn.LayerNorm(8)
        self.recur = nn.LSTM(8, 8, batch_first=True)
        self.attend = nn.MultiheadAttention(8, 2, dropout=0.1, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        x = self.convolve(x.transpose(1, 2)).transpose(1, 2)
        x = F.dropout(self.norm(x), 0.2, self.training)
        x, _ = self.recur(x)
        x, _ = self.attend(x, x, x)
        return torch.einsum("bsd,cd->bc", x, self.head.weight) + self.head.bias


def trained(counting: Counting | None) -> list[torch.Tensor]:
    torch.manual_seed(0)
    model = Varied()
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    tokens = torch.randint(0, 20, (4, 6))
    with counting or nullcontext():
        for _ in range(3):
            optimizer.zero_grad()
            F.cross_entropy(model(tokens), torch.tensor([0, 1, 2, 0])).backward()
            optimizer.step()
    with torch.inference_mode(), Counting() if counting else nullcontext():
        scores = model.eval()(tokens)
    return [*(parameter.detach() for parameter in model.parameters()), scores]


def test_counting_changes_no_bit_of_the_results() -> None:
    plain, counted = trained(None), trained(Counting(3))
    assert all(torch.equal(a, b) for a, b in zip(plain, counted, strict=True))


def test_higher_order_operators_work() -> None:
    data = rows()
    with Counting():
        out = torch.cond(data.sum() > 1e9, lambda x: x - 1, lambda x: x + 1, (data,))
    assert torch.equal(out, data + 1)


def test_a_replayed_graph_runs_while_it_is_counted_and_none_of_its_counts_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    replayed: list[object] = []
    monkeypatch.setattr(torch.cuda.CUDAGraph, "replay", replayed.append)
    graph: Any = object()
    with Counting() as counting:
        torch.cuda.CUDAGraph.replay(graph)
        torch.ones(2).add_(1)
    assert replayed == [graph]
    assert set(counting.result().values()) == {None}


def test_collections_are_counted_with_their_time() -> None:
    with CountingGc() as collecting:
        gc.collect(0)
        gc.collect()
    found = collecting.result()
    assert (found["gc_collections"] or 0) >= 2 and (found["gc_full_collections"] or 0) >= 1
    assert found["gc_ns"] == collecting.spent_ns > 0


class Enters:
    """A cycle that begins to count while it is collected."""

    def __init__(self, collecting: CountingGc) -> None:
        self.collecting, self.own = collecting, self

    def __del__(self) -> None:
        self.collecting.__enter__()


def test_a_collection_whose_start_was_not_seen_does_not_count() -> None:
    collecting = CountingGc()
    Enters(collecting)
    gc.collect()
    try:
        nothing = dict.fromkeys(("gc_collections", "gc_full_collections", "gc_ns"), 0.0)
        assert collecting.result() == nothing
        gc.collect(0)
        assert collecting.result()["gc_collections"] == 1
    finally:
        collecting.__exit__()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_counts_the_same_arithmetic_and_its_transfers() -> None:
    model, data = network(), rows()
    expected = count(lambda: train(model, data))
    found = count(lambda: train(model.cuda(), data.cuda()))
    assert (found["flops"], found["host_reads"]) == (expected["flops"], 1)
    on_device = data.cuda()
    assert count(lambda: on_device.cpu())["host_reads"] == 1
    assert count(lambda: on_device[on_device > 0])["host_reads"] == 1
    assert count(lambda: on_device.nonzero())["host_reads"] == 1
    assert count(lambda: on_device[torch.tensor([0, 1], device="cuda")])["host_reads"] == 0
