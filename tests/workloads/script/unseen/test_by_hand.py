"""Iterations of scripts that update their parameters without an optimiser."""

from __future__ import annotations

import pytest
import torch
from scripted import Start, Write, run

from perfsweep.workloads.script.config import BACKWARD, OPTIMIZER
from perfsweep.workloads.script.unseen.by_hand import leaves_of

NET = "import torch\ntorch.manual_seed(0)\nnet = torch.nn.Linear(4, 1)\n"
UPDATE = "for p in net.parameters(): p.data.add_(p.grad, alpha=-0.01)"
PASS = "net(torch.randn(8, 4)).square().mean().backward()"

HANDS = {
    "data": f"{NET}while True:\n    net.zero_grad()\n    {PASS}\n    {UPDATE}\n",
    "no_grad": f"{NET}while True:\n    net.zero_grad()\n    {PASS}\n    with torch.no_grad():\n"
    "        for p in net.parameters(): p -= 0.01 * p.grad\n",
    "a class of one's own": f"{NET}class Mine:\n    def step(self):\n        {UPDATE}\nmine = Mine()\n"
    f"while True:\n    net.zero_grad()\n    {PASS}\n    mine.step()\n",
    "no module": "import torch\nw = torch.ones(4, requires_grad=True)\nwhile True:\n"
    "    (torch.randn(8, 4) @ w).square().mean().backward()\n"
    "    w.data -= 0.01 * w.grad\n    w.grad = None\n",
    "tensors made again": "import torch\nw = torch.ones(4, requires_grad=True)\nwhile True:\n"
    "    (torch.randn(8, 4) @ w).square().mean().backward()\n"
    "    w = (w - 0.01 * w.grad).detach().requires_grad_()\n",
}


@pytest.mark.parametrize("how", HANDS)
def test_an_iteration_is_the_backward_pass_before_each_update(start: Start, write: Write, how: str) -> None:
    script = start(write(HANDS[how]))
    assert script.iteration == BACKWARD
    assert run(script, 3).counters()["backward_calls"] == 3
    assert len(script.evidence().tensors["losses"]) == 4


def test_gradients_of_several_passes_are_added_up_within_an_iteration(start: Start, write: Write) -> None:
    text = f"{NET}while True:\n    net.zero_grad()\n    {PASS}\n    {PASS}\n    {PASS}\n    {UPDATE}\n"
    script = start(write(text))
    script.prepare_evidence()
    assert run(script, 2).counters()["backward_calls"] == 6
    assert script.evidence().tensors["first_gradient"].abs().sum() > 0


def test_parameters_that_an_optimiser_updates_end_no_iteration_themselves(start: Start, write: Write) -> None:
    text = (
        f"{NET}adam = torch.optim.Adam(net.parameters())\n"
        f"while True:\n    {PASS}\n    {UPDATE}\n    {PASS}\n    adam.step()\n"
    )
    script = start(write(text))
    assert script.iteration == OPTIMIZER
    assert run(script, 2).counters()["backward_calls"] == 4


def test_the_leaves_of_a_loss_are_what_it_is_computed_from() -> None:
    a, b = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    inner = a * b
    assert {id(leaf) for leaf in leaves_of((inner * inner).sum() + a.sum())} == {id(a), id(b)}
    assert [*leaves_of(torch.ones(1))] == []
