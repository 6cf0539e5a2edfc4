"""The process group of a trial with several ranks: how they meet, and how they agree."""

from __future__ import annotations

from pathlib import Path

import torch
import torch.distributed as dist

from workloads.api import Device
from workloads.errors import UnsupportedHere

BACKENDS = {"cpu": "gloo", "cuda": "cpu:gloo,cuda:nccl"}
"""For each type of device: ranks on GPUs exchange gradients by NCCL, and what hosts decide by Gloo."""


def join(device: Device, rank: int, world: int, folder: Path) -> None:
    """Meet the other ranks of a trial, which share its folder; a process alone meets nobody.

    NCCL takes whichever device is current as its rank's own: it is chosen before the group is made.

    Raises
    ------
    UnsupportedHere
        There are fewer GPUs than ranks: NCCL does not share one.
    """
    if world == 1:
        return
    own = None
    if device.type == "cuda":
        if device.count < world:
            raise UnsupportedHere(
                f"{world} ranks need a GPU each, and this job sees {device.count}; ask for more with"
                " cluster.gpus, or for fewer ranks"
            )
        own = torch.device("cuda", rank)
        torch.cuda.set_device(own)
    meeting_point = (folder / "rendezvous").absolute().as_uri()
    dist.init_process_group(
        BACKENDS[device.type], init_method=meeting_point, rank=rank, world_size=world, device_id=own
    )


def agree(over: bool, world: int) -> bool:
    """Rank 0 decides for all ranks: their clocks differ, and collectives inside steps must match."""
    if world == 1:
        return over
    flag = torch.tensor([int(over)])
    dist.broadcast(flag, src=0)
    return bool(flag.item())


def leads(world: int) -> bool:
    """Whether this process writes files: rank 0 does, since the record that they stand beside is its own."""
    return world == 1 or dist.get_rank() == 0
