"""What a sweep will ask a cluster for, before it does."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from perfsweep.pipelines.store.progress import Progress
from perfsweep.pipelines.store.records import Manifest
from perfsweep.slurm.site import Shape, SiteProfile


@dataclass(frozen=True)
class CostEstimate:
    """GPU-hours (pack hours without GPUs); `measured` where trials of this sweep gave the time."""

    hours: float
    measured: bool
    gpus: bool

    def __str__(self) -> str:
        unit = "GPU-hours" if self.gpus else "hours"
        return (
            f"about {self.hours:.1f} {unit}, from the trials that are there"
            if self.measured
            else f"at most {self.hours:.1f} {unit}"
        )


def estimate_cost(
    manifest: Manifest, todo: dict[str, int], shapes: dict[str, Shape], site: SiteProfile, progress: Progress
) -> CostEstimate:
    """From the trials that are there, else the time limit of every pack that has to run.

    Parameters
    ----------
    todo : unfinished rounds by pack; packs without are left out
    shapes : resources by pack
    """
    packs = [pack for pack in manifest.packs if todo.get(pack.id)]
    gpus = any(shapes[pack.id].gpus for pack in packs)
    trials = [one for tries in progress.timing.values() for arms in tries.values() for one in arms.values()]
    per_trial = median(one.record.ended - one.record.started for one in trials) if trials else None
    total_s = 0.0
    for pack in packs:
        limit_s = site.time_min * 60.0
        needed_s = min(limit_s, per_trial * len(pack.arms) * todo[pack.id]) if per_trial else limit_s
        total_s += needed_s * max(1, shapes[pack.id].gpus * shapes[pack.id].nodes)
    return CostEstimate(total_s / 3600, per_trial is not None, gpus)
