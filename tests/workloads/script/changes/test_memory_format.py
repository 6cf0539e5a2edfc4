"""Channels beside one another: weights, what belongs to them, and the images of every call."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from perfsweep.workloads.script.changes import memory_format

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
    memory_format.begin(found := scene(net), "on")
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
    memory_format.begin(scene(net, optimiser), "on")
    weight, state = net.conv.weight, optimiser.state[net.conv.weight]
    for one in (weight, weight.grad, state["exp_avg"], state["exp_avg_sq"]):
        assert one.is_contiguous(memory_format=LAST) and not one.is_contiguous()
    assert all(torch.equal(state[name], value) for name, value in kept.items())
    assert state["step"].dim() == 0 and net.head.weight.is_contiguous()


def test_a_script_that_lays_out_its_convolutions_itself_is_left_alone() -> None:
    net = Net().to(memory_format=LAST)  # type: ignore[call-overload]
    assert memory_format.obstacle(scene(net), "on") == "keeps its convolutions in channels_last itself"
    thin = nn.Conv2d(1, 4, 1)  # lies both ways at once
    assert memory_format.obstacle(scene(thin), "on") is None
    assert memory_format.obstacle(scene(nn.Conv1d(3, 4, 3)), "on") == (
        "has no convolution over images in the modules it calls"
    )
