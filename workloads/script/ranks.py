"""A script among several processes: torchrun's variables, and the process group that is there already."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from typing import Any

import torch.distributed as dist
from torch import Tensor
from torch.distributed import distributed_c10d

from perfsweep.workloads.api import Context
from perfsweep.workloads.script.replaced import put


def variables(context: Context) -> dict[str, str]:
    """What torchrun sets for a process; all ranks must ask."""
    rank, world, node = str(context.rank), str(context.world), str(context.node)
    return {
        "RANK": rank,
        "LOCAL_RANK": str(context.local_rank),
        "NODE_RANK": node,
        "GROUP_RANK": node,
        "ROLE_RANK": rank,
        "WORLD_SIZE": world,
        "LOCAL_WORLD_SIZE": str(context.local_world),
        "ROLE_WORLD_SIZE": world,
        "MASTER_ADDR": context.master,
        "MASTER_PORT": str(_free_port()),
        "TORCHELASTIC_RUN_ID": "perfsweep",
    }


def share_group(undo: ExitStack) -> None:
    """Let the script's own ``init_process_group`` find the group that the trial has made."""
    if not dist.is_initialized():
        return

    def found(*args: Any, **kwargs: Any) -> None:
        return None

    for module in (dist, distributed_c10d):
        for name in ("init_process_group", "destroy_process_group"):
            put(undo, module, name, found)


def mean_over_ranks(values: Tensor, world: int) -> Tensor:
    """The mean of every rank's `values`; all ranks must ask."""
    if world == 1:
        return values
    total = values.clone()
    dist.all_reduce(total)
    return total / world


def _free_port() -> int:
    """A port of the first node that no process listens at, the same for all ranks."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        port: list[int] = [probe.getsockname()[1]]
    if dist.is_initialized():
        dist.broadcast_object_list(port, src=0)
    return port[0]
