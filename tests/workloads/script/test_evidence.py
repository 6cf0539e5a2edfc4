"""What a script shows of its results: losses, first gradients, parameters, the identity of its data."""

from __future__ import annotations

from pathlib import Path

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


def test_losses_that_are_accumulated_are_one(start: Start) -> None:
    whole, halves = (
        shown(start("plain.py", args=args), 3)
        for args in ("--batch_size=16", "--batch_size=8 --accumulate=2")
    )
    np.testing.assert_allclose(whole.tensors["losses"], halves.tensors["losses"], rtol=1e-5)
    gradients = [one.tensors["first_gradient"] for one in (whole, halves)]
    np.testing.assert_allclose(*gradients, rtol=1e-4, atol=1e-6)


def test_a_script_that_updates_by_hand_shows_its_models(start: Start, write: Write) -> None:
    step = """
    net.zero_grad()
    (net(torch.randn(8, 4)) ** 2).mean().backward()
    for parameter in net.parameters():
        parameter.data.add_(parameter.grad, alpha=-0.1)
    done()
"""
    script = start(write(loop(head="def done(): pass", step=step)), iteration="train:done")
    by_hand, by_optimizer = shown(script), shown(start(write(loop(), "optimizer.py")))
    for name in ("losses", "first_gradient", "parameters"):
        np.testing.assert_allclose(by_hand.tensors[name], by_optimizer.tensors[name], rtol=1e-6)


def test_gradients_of_a_closure_are_those_it_computes(start: Start, write: Write) -> None:
    step = """
    def closure():
        optimizer.zero_grad()
        loss = (net(torch.ones(8, 4)) ** 2).mean()
        loss.backward()
        return loss
    optimizer.step(closure)
"""
    found = shown(
        start(write(loop(head="optimizer = torch.optim.SGD(net.parameters(), lr=0.01)", step=step)))
    )
    assert found.tensors["first_gradient"].abs().sum() > 0
    assert len(found.tensors["losses"]) == 6


@pytest.mark.parametrize("args", ["--batch_size=32", "--batch_size=8 --accumulate=2", "--workers=1"])
def test_the_identity_of_the_data_does_not_depend_on_how_it_is_cut(start: Start, args: str) -> None:
    assert start("plain.py", args=args).data_digest() == start("plain.py").data_digest() != ""


def test_other_data_have_another_identity(start: Start) -> None:
    assert start("plain.py", args="--seed=1").data_digest() != start("plain.py").data_digest()


def test_without_loaders_the_first_inputs_identify_the_data(start: Start, write: Write) -> None:
    one = start(write(loop())).data_digest()
    other = start(write(loop(head="torch.manual_seed(1)"), "other.py")).data_digest()
    assert one != other != ""


def test_a_toggle_that_may_draw_other_data_leaves_them_unidentified(start: Start) -> None:
    toggles = {"seed": {"off": "", "on": {"args": "--seed=1", "parity": "stochastic"}}}
    assert start("plain.py", {"seed": "off"}, toggles=toggles).data_digest() == ""


OWN = {
    "width": {32: "--width=32", 64: "--width=64"},
    "norm": {"off": "", "on": {"replace": {"plain:Net.forward": "fast:forward"}}},
}


def test_a_toggle_by_argument_changes_the_arguments(start: Start) -> None:
    sizes = []
    for width in (32, 64):
        script = start("plain.py", {"width": width}, toggles=OWN, args="--width=32")
        sizes.append(sum(p.numel() for p in script._watched.parameters()))
        script.close()
    assert sizes == [1410, 4866]


def test_a_toggle_by_function_changes_the_function(
    start: Start, write: Write, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write(
        "def forward(self, x):\n    return self.head(self.first(x)) + 0 * self.block.weight.sum()", "fast.py"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    naive, fast = (shown(start("plain.py", {"norm": level}, toggles=OWN)) for level in ("off", "on"))
    assert not np.allclose(naive.tensors["losses"], fast.tensors["losses"])
