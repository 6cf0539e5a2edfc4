"""What torchrun would set for a process of several."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest
import torch
from torch import distributed as dist

from perfsweep.workloads.api import Context, Device
from perfsweep.workloads.script.ranks import mean_over_ranks, share_group, variables


def test_a_rank_is_told_its_place_on_its_node_and_among_all() -> None:
    here = Path("/")
    context = Context(
        Device(), here, here, rank=5, world=8, local_rank=1, local_world=4, node=1, master="first"
    )
    found = variables(context)
    assert 0 < int(found.pop("MASTER_PORT")) < 2**16
    assert found == {
        "RANK": "5",
        "LOCAL_RANK": "1",
        "NODE_RANK": "1",
        "GROUP_RANK": "1",
        "ROLE_RANK": "5",
        "WORLD_SIZE": "8",
        "LOCAL_WORLD_SIZE": "4",
        "ROLE_WORLD_SIZE": "8",
        "MASTER_ADDR": "first",
        "TORCHELASTIC_RUN_ID": "perfsweep",
    }


def test_the_scripts_group_is_that_of_the_trial_until_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    before = dist.init_process_group, dist.destroy_process_group
    with ExitStack() as undo:
        share_group(undo)
        assert dist.init_process_group(backend="nonsense") is None
        assert dist.destroy_process_group() is None
        assert dist.distributed_c10d.init_process_group("nonsense") is None
    assert (dist.init_process_group, dist.destroy_process_group) == before


def test_a_mean_over_ranks_leaves_what_it_is_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dist, "all_reduce", lambda total: total.mul_(6))
    own = torch.tensor([1.0, 4.0])
    assert mean_over_ranks(own, 1).tolist() == [1.0, 4.0]
    assert mean_over_ranks(own, 3).tolist() == [2.0, 8.0]
    assert own.tolist() == [1.0, 4.0]
