"""Scripts that no optimiser of theirs shows: updates by hand, and training in processes of their own."""

# Drives `by_hand` and `own_processes` of perfsweep.workloads.script.unseen, and `workload` of
# perfsweep.workloads.script.
from __future__ import annotations

import multiprocessing

import pytest
from loops import LOOP
from scripted import Start, Write, run

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.script.config import BACKWARD

NET = "import torch\ntorch.manual_seed(0)\nnet = torch.nn.Linear(4, 1)\n"
UPDATE = "for p in net.parameters(): p.data.add_(p.grad, alpha=-0.01)"
PASS = "net(torch.randn(8, 4)).square().mean().backward()"

HANDS = {
    "data": f"{NET}while True:\n    net.zero_grad()\n    {PASS}\n    {UPDATE}\n",
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


TRAINS = """
import torch, torch.multiprocessing as mp

def work(rank):
    net = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    while True:
        net(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()

if __name__ == "__main__":
"""
FORKS = """
    context = mp.get_context("fork")
    processes = [context.Process(target=work, args=(rank,)) for rank in range(3)]
    for process in processes: process.start()
    for process in processes: process.join()
"""


def test_forks_that_train_are_named_and_ended(start: Start, write: Write) -> None:
    told = (
        r"trains in \d process.* that it starts itself \(.*train.py:14\).* workload.ranks=\d; else .*=command"
    )
    with pytest.raises(ConfigError, match=told):
        start(write(TRAINS.lstrip() + FORKS))


@pytest.mark.workloads
def test_spawned_processes_that_train_are_named(start: Start, write: Write) -> None:
    with pytest.raises(ConfigError, match=r"trains in 2 processes that it starts itself"):
        start(write(TRAINS + "    mp.spawn(work, nprocs=2)\n"))


def test_processes_that_only_prepare_data_do_not_matter(start: Start, write: Write) -> None:
    head = "import multiprocessing\np = multiprocessing.Process(target=print)\np.start()\np.join()\n"
    start(write(head + LOOP)).close()
    assert not multiprocessing.active_children()
