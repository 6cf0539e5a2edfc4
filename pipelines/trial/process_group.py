"""The process group of a trial with several ranks: how they meet, and how they agree."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist

from perfsweep.pipelines.store.trial_schema import TrialSpec
from perfsweep.workloads.api import Device
from perfsweep.workloads.errors import UnsupportedHere

BACKENDS = {"cpu": "gloo", "cuda": "cpu:gloo,cuda:nccl"}
"""For each type of device: ranks on GPUs exchange gradients by NCCL, and what hosts decide by Gloo."""


@dataclass(frozen=True)
class Place:
    """Where a rank runs: nodes are filled in the order of the ranks.

    Attributes
    ----------
    node : number of its node among those of the trial
    local_rank, local_world : its number on that node, and how many are there
    """

    rank: int
    world: int
    node: int
    local_rank: int
    local_world: int

    @classmethod
    def of(cls, spec: TrialSpec, rank: int) -> Place:
        """The place of a rank of a trial."""
        node, local_rank = divmod(rank, spec.beside)
        return cls(rank, spec.world, node, local_rank, min(spec.beside, spec.world - node * spec.beside))


def join(device: Device, place: Place, folder: Path, meet: str | None = None) -> None:
    """Meet the other ranks of a trial, at HOST:PORT or in its folder; a single process waits for none.

    NCCL takes whichever device is current as its rank's own: it is chosen before the group is made.

    Raises
    ------
    UnsupportedHere
        There are fewer GPUs than ranks: NCCL does not share one.
    """
    if place.world == 1:
        return
    own = None
    if device.type == "cuda":
        if device.count < place.local_world:
            raise UnsupportedHere(
                f"{place.local_world} ranks need a GPU each, and this job sees {device.count}; ask for more"
                " with cluster.gpus, or for fewer ranks"
            )
        own = torch.device("cuda", place.local_rank)
        torch.cuda.set_device(own)
    # Of an address that names a file torch decodes nothing: folders have blanks, or an @.
    file = str(folder / "rendezvous")
    store = None if meet else dist.FileStore(file, place.world)  # pyright: ignore[reportPrivateImportUsage]
    dist.init_process_group(
        BACKENDS[device.type],
        init_method=f"tcp://{meet}" if meet else None,
        store=store,
        rank=place.rank,
        world_size=place.world,
        device_id=own,
    )


def local_rank(spec: TrialSpec) -> int:
    """The number of this process among those of the trial on its node."""
    return 0 if spec.world == 1 else Place.of(spec, dist.get_rank()).local_rank


def agree(over: bool, world: int) -> bool:
    """Rank 0 decides for all ranks: their clocks differ, and collectives inside steps must match."""
    if world == 1:
        return over
    flag = torch.tensor([int(over)])
    dist.broadcast(flag, src=0)
    return bool(flag.item())


def any_of(over: bool, world: int) -> bool:
    """Whether it has ended for any rank: the others would wait for it for ever."""
    if world == 1:
        return over
    flag = torch.tensor([int(over)])
    dist.all_reduce(flag, dist.ReduceOp.MAX)
    return bool(flag.item())


def leads(world: int) -> bool:
    """Whether this process writes files: rank 0 does, which also writes the record next to them."""
    return world == 1 or dist.get_rank() == 0
