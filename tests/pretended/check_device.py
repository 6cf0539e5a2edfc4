"""The pretended GPU computes what the host computes, and refuses what a real one refuses.

Run by `tests/workloads/test_pretended_gpu.py`, in a process that loads it before torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from pretend_cuda.graphs import compiled
from pretend_cuda.tensors import waits
from torch import Tensor, nn

from perfsweep.pipelines.trial.counting.counters import Counting

X = torch.linspace(-1.0, 1.0, 12).reshape(3, 4)


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    yield
    torch.cuda.set_sync_debug_mode("default")


def waited(work: Callable[[], object]) -> list[str]:
    before = +waits.counts
    work()
    return sorted((waits.counts - before).elements())


def trained(device: str, fused: bool) -> list[Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2)).to(device)
    first = model[0].weight
    optimizer = torch.optim.AdamW(model.parameters(), fused=fused)
    for _ in range(3):
        optimizer.zero_grad()
        model(X.to(device)).square().mean().backward()
        optimizer.step()
    assert model[0].weight is first
    return [parameter.detach().cpu() for parameter in model.parameters()]


@pytest.mark.parametrize("fused", [False, True])
def test_training_there_gives_what_it_gives_here(fused: bool) -> None:
    for there, here in zip(trained("cuda", fused), trained("cpu", fused), strict=True):
        assert torch.equal(there, here)


def test_tensors_of_two_devices_are_refused_and_numbers_are_not() -> None:
    x = X.cuda()
    with pytest.raises(RuntimeError, match="found at least two devices, cuda:0 and cpu"):
        x + X
    assert (x + torch.tensor(1.0)).device.type == "cuda"


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


def test_a_tensor_may_be_given_the_values_of_another() -> None:
    parameter, other = nn.Parameter(X.cuda()), (2 * X).cuda()
    kept = parameter.data
    parameter.data = other
    assert torch.equal(parameter.detach().cpu(), 2 * X) and parameter.data_ptr() == other.data_ptr()
    parameter.data = kept
    assert torch.equal(parameter.detach().cpu(), X)


def test_its_generator_gives_the_numbers_of_the_host_s() -> None:
    there, here = torch.Generator(device="cuda").manual_seed(3), torch.Generator().manual_seed(3)
    for _ in range(2):
        drawn = torch.rand(4, generator=there, device="cuda")
        assert torch.equal(drawn.cpu(), torch.rand(4, generator=here))


def test_autocast_casts_what_it_casts_on_cuda() -> None:
    with torch.autocast("cuda", torch.bfloat16):
        assert (X.cuda() @ X.cuda().T).dtype == torch.bfloat16


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


def test_what_takes_the_place_of_a_captured_tensor_is_not_seen() -> None:
    rate, total = torch.ones((), device="cuda"), torch.zeros((), device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        total += rate
    rate = torch.full((), 100.0, device="cuda")
    graph.replay()
    assert total.item() == 1.0


def test_a_captured_draw_goes_on_at_each_replay() -> None:
    generator = torch.Generator(device="cuda").manual_seed(3)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        drawn = torch.rand(2, generator=generator, device="cuda")
    found = []
    for _ in range(2):
        graph.replay()
        found.append(drawn.cpu().clone())
    assert torch.equal(torch.cat(found), torch.rand(4, generator=torch.Generator().manual_seed(3)))


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
    assert "operators of replayed CUDA graphs are not counted" in replayed.notes
    with Counting() as eager:
        x @ x.T
    assert eager.result()["ops"] == 1
    assert eager.notes == ()


def test_results_of_graphed_code_last_until_the_next_step_overwrites_them() -> None:
    double = compiled(lambda x: (2 * x, x), mode="reduce-overhead")
    x = X.cuda()
    (first, same), (second, _) = double(x), double(x)
    assert torch.equal(first.cpu(), 2 * X) and torch.equal(second.cpu(), 2 * X)
    torch.compiler.cudagraph_mark_step_begin()
    assert torch.equal(first.cpu(), 2 * X)
    double(x)
    assert first.isnan().all() and second.isnan().all()
    assert torch.equal(same.cpu(), X), "what it was given is not in memory of its graph"


def test_graphed_code_may_not_wait_and_makes_constants_of_what_the_host_gives() -> None:
    with pytest.raises(RuntimeError, match="not permitted when stream is capturing"):
        compiled(lambda x: x.sum().item(), mode="reduce-overhead")(X.cuda())
    added = compiled(lambda x: x + torch.tensor([1.0], device="cuda"), mode="reduce-overhead")(X.cuda())
    assert torch.equal(added.cpu(), X + 1)
    assert compiled(lambda x: x.sum().item())(X.cuda()) == pytest.approx(0.0, abs=1e-5)
