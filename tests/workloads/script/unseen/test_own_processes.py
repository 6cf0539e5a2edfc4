"""Scripts that train in processes which they start themselves."""

from __future__ import annotations

import multiprocessing

import pytest
from loops import LOOP
from scripted import Start, Write

from perfsweep.workloads.errors import ConfigError

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
