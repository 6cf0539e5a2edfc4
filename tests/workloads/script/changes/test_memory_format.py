"""Copies that do not wait, and channels that lie next to one another: what each changes, and where."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from perfsweep.workloads.script.call_sites import CallSites
from perfsweep.workloads.script.changes import copies, modules
from perfsweep.workloads.script.changes.scene import wrap

LAST = torch.channels_last


class Net(nn.Module):
    """A convolution that says how its images lie."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 4, 3), nn.Linear(4, 2)
        self.seen: list[tuple[bool, ...]] = []

    def forward(self, images: Tensor, masks: Tensor, weights: Tensor, name: str = "") -> Tensor:
        self.seen.append(tuple(one.is_contiguous(memory_format=LAST) for one in (images, masks)))
        assert weights.dim() == 2 and name == "a"
        return self.head(self.conv(images * masks).mean((2, 3))) * weights


def scene(module: nn.Module, *made: torch.optim.Optimizer) -> Any:
    watched = SimpleNamespace(counts=Counter(), made=made, input_dims={module: {2, 4}})
    return SimpleNamespace(modules=[module], watched=watched)


def test_images_of_a_call_are_laid_out_and_counted_and_the_rest_is_handed_on() -> None:
    torch.manual_seed(0)
    net, images, masks, weights = Net(), torch.randn(2, 3, 5, 5), torch.rand(2, 3, 5, 5), torch.ones(2, 2)
    before = net(images, masks, weights, name="a")
    modules.begin_layout(found := scene(net), "on")
    after = net(images, masks=masks, weights=weights, name="a")
    assert torch.allclose(before, after, atol=1e-6)
    assert net.seen == [(False, False), (True, True)]
    assert found.watched.counts == {"channels_last_inputs": 2}


def test_gradients_and_momenta_lie_as_their_weights_do() -> None:
    net = Net()
    optimiser = torch.optim.Adam(net.parameters(), lr=0.1)
    net.conv(torch.randn(2, 3, 5, 5)).sum().backward()
    net.head(torch.randn(2, 4)).sum().backward()
    optimiser.step()
    kept = {name: value.clone() for name, value in optimiser.state[net.conv.weight].items()}
    modules.begin_layout(scene(net, optimiser), "on")
    weight, state = net.conv.weight, optimiser.state[net.conv.weight]
    for one in (weight, weight.grad, state["exp_avg"], state["exp_avg_sq"]):
        assert one.is_contiguous(memory_format=LAST) and not one.is_contiguous()
    assert all(torch.equal(state[name], value) for name, value in kept.items())
    assert state["step"].dim() == 0 and net.head.weight.is_contiguous()


@pytest.mark.parametrize(
    ("pinned", "copy", "waits", "counted"),
    [
        (True, lambda one: one.to("cuda"), False, 1),
        (True, lambda one: one.to("cuda", torch.float64, False), True, 1),
        (False, lambda one: one.to("cuda"), True, 1),
    ],
)
def test_only_copies_from_pinned_memory_return_at_once(
    monkeypatch: pytest.MonkeyPatch, pinned: bool, copy: Any, waits: bool, counted: int
) -> None:
    seen: list[dict[str, Any]] = []

    def copying(tensor: Tensor, *place: Any, **options: Any) -> Any:
        seen.append(options)
        return SimpleNamespace(is_cuda=place[:1] != ("cpu",))

    monkeypatch.setattr(Tensor, "is_pinned", lambda one: pinned)
    counts = Counter[str]()
    with ExitStack() as undo:
        Tensor.to = Tensor.cuda = copying  # type: ignore[method-assign, assignment]
        copies.begin(SimpleNamespace(watched=SimpleNamespace(counts=counts), undo=undo), "on")  # type: ignore[arg-type]
        assert copy(torch.zeros(2)).is_cuda == counted
    assert [options.get("non_blocking", False) for options in seen] == [not waits]
    assert counts["unwaited_copies"] == (0 if waits else counted)
    assert "to" not in vars(Tensor) and "cuda" not in vars(Tensor)


@pytest.mark.parametrize(
    ("cuda", "pinned", "arrives", "given", "noted"),
    [
        *((False, True, True, {}, "copy"), (True, True, False, {}, "back")),
        *((False, False, True, {}, None), (True, True, True, {}, None), (False, True, False, {}, None)),
        (False, True, True, {"non_blocking": True}, None),
    ],
)
def test_copies_from_pinned_memory_and_back_are_seen_on_a_gpu_until_the_first_mark(
    cuda: bool, pinned: bool, arrives: bool, given: Any, noted: str | None
) -> None:
    sites, one = CallSites(), SimpleNamespace(is_cuda=cuda, is_pinned=lambda: pinned)
    copied: Any = SimpleNamespace(is_cuda=arrives)
    with ExitStack() as undo:
        Tensor.to = lambda tensor, **options: copied  # type: ignore[method-assign, assignment]
        around: Any = SimpleNamespace(sites=sites, own=SimpleNamespace(until_first_mark=undo))
        for kind, seen in (("cpu", []), ("cuda", [(noted, "to", ())] if noted else [])):
            around.device = SimpleNamespace(type=kind)
            copies.watch(around)
            assert Tensor.to(one, **given) is copied  # type: ignore[call-overload, arg-type]
            assert [(site.what, site.called, site.given) for site in sites.found] == seen
    assert "to" not in vars(Tensor) and "cuda" not in vars(Tensor)


class OwnCall(nn.Identity):
    def __call__(self, x: float) -> float:  # as some libraries have it: it does not look for compiled code
        return self.forward(x)


@pytest.mark.parametrize("kind", [nn.Identity, OwnCall])
def test_every_call_of_one_module_goes_through_all_that_is_put_around_it(kind: type[nn.Module]) -> None:
    module, other = kind(), kind()
    for expected in (6, 12):
        wrap(module, lambda call: lambda *given: 2 * call(*given))
        assert (module(3), other(3)) == (expected, 3)
