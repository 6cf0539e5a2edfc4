"""The jobs that packs run in: command, environment and resources of each."""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from perfsweep.pipelines.config.types import ClusterConfig
from perfsweep.pipelines.execution import shared_job, submitted
from perfsweep.pipelines.execution.allotment import VARIABLE, Allotment, refuse_unseen_gpus
from perfsweep.pipelines.execution.submitted import COLLECT
from perfsweep.pipelines.store import code_snapshot
from perfsweep.pipelines.store.planned import declared_workload
from perfsweep.pipelines.store.records import Manifest, Pack, SweepFolder
from perfsweep.slurm.jobs import Job, executor_class
from perfsweep.slurm.site import Shape
from perfsweep.workloads.api import Declaration, Device
from perfsweep.workloads.user_environment import changed


def collect_job(folder: SweepFolder, env: dict[str, str]) -> Job:
    """The job that writes the comparison when the last pack has ended, while no user is logged in."""
    path = folder.path.absolute()
    command = (sys.executable, "-m", "perfsweep.pipelines.cli", "compare", str(path))
    return Job(COLLECT, command, path / "packs" / COLLECT / "log.txt", env)


def jobs_of(
    folder: SweepFolder,
    manifest: Manifest,
    packs: list[Pack],
    cluster: ClusterConfig,
    device: Device,
    retry: tuple[str, ...],
    code: Path,
) -> list[Job]:
    """Make a job of each pack, or of several that share one.

    Raises
    ------
    ClusterError
        They run in this process's own job, which has GPUs that torch does not see.
    """
    remote, own_device = executor_class(cluster.executor).remote, _class(manifest).own_device
    if not (remote or own_device):
        refuse_unseen_gpus(device)
    asked = {pack.id: resources_of(manifest, pack, cluster) for pack in packs}
    per_job = cluster.packs_per_job if remote else 1
    alive = [job for jobs in submitted.alive(folder).values() for job in jobs]
    sharing = shared_job.jobs_for(asked, per_job, alive)
    env = environment(folder, manifest, code)
    return [_job(folder, manifest, names, cluster, device, asked, retry, env) for names in sharing]


def _job(
    folder: SweepFolder,
    manifest: Manifest,
    packs: tuple[str, ...],
    cluster: ClusterConfig,
    device: Device,
    asked: Mapping[str, Mapping[str, Any]],
    retry: tuple[str, ...],
    env: dict[str, str],
) -> Job:
    name = shared_job.name_of(packs)
    one, several = "perfsweep.pipelines.execution.pack", "perfsweep.pipelines.execution.shared_job"
    module = one if len(packs) == 1 else several
    own_code = ("perfsweep.pipelines.own_code", module)
    command = (sys.executable, "-m", *own_code, str(folder.path.absolute()), name, *retry)
    log, own = folder.pack_dir(name) / "log.txt", dict(next((asked[p] for p in packs if p in asked), {}))
    ranks = [_ranks(manifest, manifest.pack(pack), _seen(device, asked.get(pack, {}))) for pack in packs]
    largest = Shape.of(cluster, max(ranks), own)
    if executor_class(cluster.executor).remote:
        allotment = Allotment.of(cluster, largest, by_torch=not _class(manifest).own_device)
        env = {**env, VARIABLE: allotment.text}
    if len(packs) == 1:
        gpus = _least_gpus(manifest, manifest.pack(packs[0]), device)
        return Job(name, command, log, env, ranks[0], own, gpus)
    # Packs get equal shares, so each is given what the largest needs.
    own |= {"gpus": largest.gpus * len(packs), "cpus_per_task": largest.cpus * len(packs)}
    return Job(name, command, log, env, resources=own)


def environment(folder: SweepFolder, manifest: Manifest, code: Path) -> dict[str, str]:
    """Variables that jobs get on top of the node's own: where the copy of the code is, and its threads."""
    paths = [str(code.absolute()), *manifest.sweep.import_paths, os.environ.get("PYTHONPATH", "")]
    own = {
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
        "PYTHONSAFEPATH": "1",  # otherwise a checkout in the current folder would win over the snapshot
        "OMP_NUM_THREADS": str(manifest.sweep.measure.threads),
        VARIABLE: "",  # on this machine nothing was asked for, whatever the job around us has
        **code_snapshot.sources_env(folder.code_dir, manifest.sweep.code),
    }
    return changed(os.environ, own)


def shapes(manifest: Manifest, cluster: ClusterConfig, device: Device) -> dict[str, Shape]:
    """Resources each pack asks for; `device` is the one that was planned for."""
    asked = {pack.id: resources_of(manifest, pack, cluster) for pack in manifest.packs}
    return {
        pack.id: Shape.of(cluster, _ranks(manifest, pack, _seen(device, asked[pack.id])), asked[pack.id])
        for pack in manifest.packs
    }


def _seen(device: Device, asked: Mapping[str, Any]) -> Device:
    """The device as a pack sees it: with the GPUs that its own resources ask for, where they do."""
    return replace(device, count=asked.get("gpus", device.count)) if device.type == "cuda" else device


def _ranks(manifest: Manifest, pack: Pack, device: Device) -> int:
    """Processes that the largest trial of a pack runs side by side, one GPU each."""
    cls, arms = _arms_of(manifest, pack)
    everywhere = replace(device, count=device.count * manifest.sweep.nodes)
    return max(cls.processes(levels, everywhere) for levels in arms)


def _least_gpus(manifest: Manifest, pack: Pack, device: Device) -> int:
    """GPUs without which a level of a pack's arms cannot act, as one that splits a model over two."""
    if device.count < 2:
        return device.count
    cls, arms = _arms_of(manifest, pack)
    levels = [level for one in arms for level in cls.levels_of(one).values()]
    fewer = (replace(device, count=count) for count in range(1, device.count))
    enough = (here.count for here in fewer if not any(level.unsupported(here) for level in levels))
    return next(enough, device.count)


def _arms_of(manifest: Manifest, pack: Pack) -> tuple[type[Declaration], list[Mapping[str, Any]]]:
    """The workload of a pack, and its own levels of each arm."""
    return _class(manifest), [manifest.sweep.workload_levels(manifest.arm(arm)) for arm in pack.arms]


def _class(manifest: Manifest) -> type[Declaration]:
    return _workload(manifest.sweep.workload, json.dumps(manifest.sweep.config, sort_keys=True))


@functools.lru_cache(maxsize=1)
def _workload(name: str, config: str) -> type[Declaration]:
    """The workload of a configuration as JSON: finding it among what is installed costs 30 ms."""
    return declared_workload(name, json.loads(config))[0]


_WORDS = {True: "on", False: "off"}


def resources_of(manifest: Manifest, pack: Pack, cluster: ClusterConfig) -> dict[str, Any]:
    """Look up the fields of the site profile that are different for a pack; the last rule that fits wins."""
    levels = [manifest.arm(arm).levels for arm in pack.arms]
    found: dict[str, Any] = {}
    for rule in cluster.arm_resources:
        if any(_has(arm, rule.levels) for arm in levels):
            found |= rule.asked
    return found


def unused(cluster: ClusterConfig, manifest: Manifest) -> list[str]:
    """Warn of rules that are about no arm of a sweep, whose levels may be misspelt."""
    return [
        f"cluster.arm_resources: no arm of this sweep has {_shown(rule.levels)}, so that rule changes nothing"
        for rule in cluster.arm_resources
        if not any(_has(arm.levels, rule.levels) for arm in manifest.arms)
    ]


def _has(arm: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    return all(str(arm.get(name)) == _written(level) for name, level in wanted.items())


def _shown(levels: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={_written(level)}" for name, level in levels.items())


def _written(level: Any) -> str:
    """A level as the user wrote it: YAML reads on and off as booleans."""
    return _WORDS[level] if isinstance(level, bool) else str(level)
