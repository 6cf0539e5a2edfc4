"""The ranks of a trial: how they meet and agree, and what those of a timing trial find out together.

Ranks begin a region together, after a barrier, and each times its own part of it; the trial's figure is that
of the rank that took longest. Within an iteration collectives make all ranks equally slow: who waited for
whom shows only in how long each was inside them, which a few iterations under the profiler tell afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from perfsweep.pipelines.store.trial_schema import RankFigures, TrialSpec
from perfsweep.pipelines.trial.counters import covered
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
        node, local_rank = divmod(rank, spec.node_ranks)
        return cls(
            rank, spec.world, node, local_rank, min(spec.node_ranks, spec.world - node * spec.node_ranks)
        )


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


PROFILED_ITERATIONS = 5

Span = tuple[float, float]
"""Start and end of one collective on one rank's clock, in microseconds."""


@dataclass(frozen=True)
class Region:
    """What one rank timed: the regions of its parts, ns, its iterations, ns [N], on so many devices."""

    node: str
    region_ns: tuple[int, ...]
    wall_ns: np.ndarray
    devices: int = 0


@dataclass(frozen=True)
class Profiled:
    """What the profiler saw of one rank: the time it took, in microseconds, and its collectives in order."""

    wall_us: float
    spans: tuple[Span, ...]


def barrier(world: int) -> None:
    """Wait until all ranks are here; a single process does not wait."""
    if world > 1:
        dist.all_reduce(
            torch.zeros(1)
        )  # of the hosts: `dist.barrier` would use the device where there is one


def gathered(own: Any, world: int) -> list[Any]:
    """Every rank's value; all must ask."""
    parts: list[Any] = [own]
    if world > 1:
        parts = [None] * world
        dist.all_gather_object(parts, own)
    return parts


def slowest_ns(ranks: Sequence[Region]) -> int:
    """The time of the slowest rank, part by part: each part begins with all ranks together."""
    return sum(max(parts) for parts in zip(*(rank.region_ns for rank in ranks), strict=True))


def figures(ranks: Sequence[Region]) -> RankFigures:
    """What the record keeps of the ranks."""
    return RankFigures(
        nodes=tuple(rank.node for rank in ranks), region_ns=tuple(sum(rank.region_ns) for rank in ranks)
    )


def iteration_arrays(ranks: Sequence[Region]) -> dict[str, np.ndarray]:
    """Iteration times of every rank, ns [N] each, as arrays to keep."""
    return {f"rank{number}_wall_ns": rank.wall_ns for number, rank in enumerate(ranks)}


def profiled(step: Callable[[], None], synchronize: Callable[[], None]) -> Profiled:
    """Run some iterations under the profiler, which slows what the host does: shares, never times.

    Gloo reports each collective from its call to its completion. NCCL's are kernels, which begin when the
    rank reaches them and end when all have.
    """
    from torch.profiler import ProfilerActivity, profile

    device = [ProfilerActivity.CUDA] if torch.cuda.is_available() else []
    with (
        profile(activities=[ProfilerActivity.CPU, *device]) as profiler,
        torch.profiler.record_function(_WHOLE),
    ):
        for _ in range(PROFILED_ITERATIONS):
            step()
        synchronize()
    events = profiler.events() or []
    whole = next(event.time_range for event in events if event.name == _WHOLE)
    return Profiled(whole.elapsed_us(), tuple(sorted(_collectives(events))))


_WHOLE = "perfsweep: iterations of ranks"


def _collectives(events: Iterable[Any]) -> Iterable[Span]:
    for event in events:
        on_device = "CPU" not in str(event.device_type)
        if event.name.startswith("gloo:") or (on_device and "nccl" in event.name.lower()):
            yield event.time_range.start, event.time_range.end


def with_shares(found: RankFigures, ranks: Sequence[Profiled]) -> RankFigures:
    """Add what the profiler saw; nothing where ranks took part in different collectives, or in none.

    The rank that reaches a collective last is in it for the shortest time. What another one is in it for
    longer it waits, and where several are under way at once, it waits once.
    """
    if not ranks[0].spans or len({len(rank.spans) for rank in ranks}) > 1:
        return found
    inside = [covered(rank.spans) / rank.wall_us for rank in ranks]
    shortest = [
        min(end - start for start, end in spans) for spans in zip(*(r.spans for r in ranks), strict=True)
    ]
    waits = [_waits(rank.spans, shortest) / rank.wall_us for rank in ranks]
    update = {"collectives": float(np.mean(inside)), "straggling": float(np.mean(waits))}
    return replace(found, **update)


def _waits(spans: Sequence[Span], shortest: Sequence[float]) -> float:
    return covered((start, end - least) for (start, end), least in zip(spans, shortest, strict=True))
