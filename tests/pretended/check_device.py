"""The pretended GPU replays graphs, and refuses what a real one refuses.

Run by `tests/workloads/test_pretended_gpu.py`, in a process that loads it before torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from pretend_cuda.tensors import waits

from perfsweep.pipelines.trial.counters import Counting

X = torch.linspace(-1.0, 1.0, 12).reshape(3, 4)


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    yield
    torch.cuda.set_sync_debug_mode("default")


def waited(work: Callable[[], object]) -> list[str]:
    before = +waits.counts
    work()
    return sorted((waits.counts - before).elements())


@pytest.mark.parametrize(
    ("work", "what"),
    [
        (lambda x: x.sum().item(), ["_local_scalar_dense"]),
        (lambda x: bool(x.sum() > 0), ["_local_scalar_dense"]),
        (lambda x: x.nonzero(), ["nonzero"]),
        (lambda x: x[x > 0], ["index"]),
        (lambda x: x[torch.tensor([0])], ["index by places of the host"]),
        (lambda x: x.cpu(), ["copy to the host"]),
        (lambda x: X.to("cuda"), ["copy to the device"]),
        (lambda x: X.pin_memory().to("cuda", non_blocking=True), []),
        (lambda x: x.to("cpu", non_blocking=True), []),
        (lambda x: (x @ x.T).softmax(-1).argmax(1), []),
    ],
)
def test_what_waits_is_counted_and_refused_where_it_may_not(work: Callable, what: list[str]) -> None:
    x = X.cuda()
    assert waited(lambda: work(x)) == what
    torch.cuda.set_sync_debug_mode("error")
    if what:
        with pytest.raises(RuntimeError, match="called a synchronizing CUDA operation"):
            work(x)
    else:
        work(x)


def test_a_graph_runs_at_its_replay_and_on_the_memory_of_its_capture() -> None:
    batch, total = X.cuda(), torch.zeros(4, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        total += (2 * batch).sum(0)
    assert total.cpu().sum() == 0  # nothing has run
    for step in range(1, 4):
        batch.copy_(step * X)
        graph.replay()
    assert torch.allclose(total.cpu(), 12 * X.sum(0))


def test_waiting_ends_a_capture() -> None:
    x = X.cuda()
    with (
        pytest.raises(RuntimeError, match="not permitted when stream is capturing"),
        torch.cuda.graph(torch.cuda.CUDAGraph()),
    ):
        x.sum().item()


def test_what_a_replay_computes_is_not_called_nothing() -> None:
    """Operators ran when the graph was captured: of its replays nothing is known."""
    x = X.cuda()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        x @ x.T
    with Counting() as replayed:
        graph.replay()
    assert set(replayed.result().values()) == {None}
    with Counting() as eager:
        x @ x.T
    assert eager.result()["ops"] == 1
