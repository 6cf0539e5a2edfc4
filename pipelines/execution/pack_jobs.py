"""The jobs that packs run in: command, environment and resources of each."""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipelines.config.types import ClusterConfig
from pipelines.config.validation import load_workload
from pipelines.execution import shared_job, submitted
from pipelines.execution.arm_resources import resources_of
from pipelines.execution.submitted import COLLECT
from pipelines.store import code_snapshot
from pipelines.store.records import Manifest, Pack, SweepFolder
from slurm import executors
from slurm.jobs import Job
from slurm.site import Shape
from workloads.api import Workload
from workloads.user_environment import changed


def collect_job(folder: SweepFolder, env: dict[str, str]) -> Job:
    """The job that writes the comparison when the last pack has ended, with nobody logged in."""
    path = folder.path.absolute()
    command = (sys.executable, "-m", "pipelines.cli", "compare", str(path))
    return Job(COLLECT, command, path / "packs" / COLLECT / "log.txt", env)


def jobs_of(
    folder: SweepFolder,
    manifest: Manifest,
    packs: list[Pack],
    cluster: ClusterConfig,
    retry: tuple[str, ...],
    code: Path,
) -> list[Job]:
    """Make a job of each pack, or of several that share one."""
    asked = {pack.id: resources_of(manifest, pack, cluster) for pack in packs}
    per_job = cluster.packs_per_job if executors.find(cluster.executor).remote else 1
    alive = [job for jobs in submitted.alive(folder).values() for job in jobs]
    sharing = shared_job.jobs_for(asked, per_job, alive)
    env = environment(folder, manifest, code)
    return [_job(folder, manifest, names, cluster, asked, retry, env) for names in sharing]


def _job(
    folder: SweepFolder,
    manifest: Manifest,
    packs: tuple[str, ...],
    cluster: ClusterConfig,
    asked: Mapping[str, Mapping[str, Any]],
    retry: tuple[str, ...],
    env: dict[str, str],
) -> Job:
    name = shared_job.name_of(packs)
    module = "pipelines.execution.pack" if len(packs) == 1 else "pipelines.execution.shared_job"
    command = (sys.executable, "-m", module, str(folder.path.absolute()), name, *retry)
    log, own = folder.pack_dir(name) / "log.txt", dict(next((asked[p] for p in packs if p in asked), {}))
    ranks = [_ranks(manifest, manifest.pack(pack)) for pack in packs]
    if len(packs) == 1:
        return Job(name, command, log, env, ranks[0], own)
    # Packs get equal shares, so each is given what the largest needs.
    largest = Shape.of(cluster, max(ranks), own)
    own |= {"gpus": largest.gpus * len(packs), "cpus_per_task": largest.cpus * len(packs)}
    return Job(name, command, log, env, resources=own)


def environment(folder: SweepFolder, manifest: Manifest, code: Path) -> dict[str, str]:
    """Variables that jobs get beside those of the node: where the copy of the code is, and its threads."""
    paths = [str(code.absolute()), *manifest.sweep.import_paths, os.environ.get("PYTHONPATH", "")]
    own = {
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
        "PYTHONSAFEPATH": "1",  # otherwise a checkout in the current folder would win over the snapshot
        "OMP_NUM_THREADS": str(manifest.sweep.measure.threads),
        **code_snapshot.sources_env(folder.code_dir, manifest.sweep.code),
    }
    return changed(os.environ, own)


def shapes(manifest: Manifest, cluster: ClusterConfig) -> dict[str, Shape]:
    """Resources each pack asks for."""
    return {
        pack.id: Shape.of(cluster, _ranks(manifest, pack), resources_of(manifest, pack, cluster))
        for pack in manifest.packs
    }


def _ranks(manifest: Manifest, pack: Pack) -> int:
    """Processes that the largest trial of a pack runs side by side, one GPU each."""
    cls = _workload(manifest.sweep.workload, json.dumps(manifest.sweep.config, sort_keys=True))
    own = [manifest.sweep.workload_levels(manifest.arm(arm)) for arm in pack.arms]
    levels = [cls.levels_of(one).values() for one in own]
    return max([cls.ranks, *(level.ranks for some in levels for level in some)])


@functools.lru_cache(maxsize=1)
def _workload(name: str, config: str) -> type[Workload]:
    """The workload of a configuration as JSON: finding it among what is installed costs 30 ms."""
    return load_workload(name, json.loads(config))[0]
