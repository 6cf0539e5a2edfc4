"""What a script shows of its results: losses, first gradients, parameters, the identity of its data."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from loops import loop
from scripted import Start, Write, run

from perfsweep.workloads.api import Evidence
from perfsweep.workloads.script.workload import Script

pytestmark = pytest.mark.workloads


def shown(script: Script, iterations: int = 5) -> Evidence:
    script.prepare_evidence()
    return run(script, iterations).evidence()


def test_losses_and_parameters_are_those_of_the_same_loop_by_hand(start: Start, write: Write) -> None:
    found = shown(start(write(loop())))
    torch.manual_seed(0)
    net = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    losses, gradients = [], []
    for _ in range(6):
        optimizer.zero_grad()
        loss = (net(torch.randn(8, 4)) ** 2).mean()
        loss.backward()
        gradients.append(torch.cat([p.grad.flatten() for p in net.parameters() if p.grad is not None]))
        optimizer.step()
        losses.append(loss.item())
    np.testing.assert_array_equal(found.tensors["losses"], np.float32(losses))
    np.testing.assert_array_equal(found.tensors["first_gradient"], gradients[1])  # set-up made the first step
    by_hand = torch.cat([p.detach().flatten() for p in net.parameters()])
    np.testing.assert_array_equal(found.tensors["parameters"], by_hand)


def test_two_runs_of_a_script_agree_and_of_an_unseeded_one_do_not(start: Start) -> None:
    one, other = (shown(start("plain.py")) for _ in range(2))
    for name in one.tensors:
        np.testing.assert_array_equal(one.tensors[name], other.tensors[name])
    one, other = (shown(start("unrepeatable.py")) for _ in range(2))
    assert not np.array_equal(one.tensors["losses"], other.tensors["losses"])


@pytest.mark.parametrize("args", ["--batch_size=8 --accumulate=2", "--workers=1"])
def test_the_identity_of_the_data_does_not_depend_on_how_it_is_cut(start: Start, args: str) -> None:
    assert start("plain.py", args=args).data_digest() == start("plain.py").data_digest() != ""
