"""What the ranks of a timing trial find out together: the slowest region, and waiting in collectives.

Ranks begin a region together, after a barrier, and each times its own part of it; the trial's figure is that
of the rank that took longest. Within an iteration collectives make all ranks equally slow: who waited for
whom shows only in how long each was inside them, which a few iterations under the profiler tell afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from perfsweep.pipelines.store.trial_schema import RankFigures
from perfsweep.pipelines.trial.counters import covered

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
