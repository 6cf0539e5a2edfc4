"""Where a sweep runs: as asked, except that nobody submits from inside a job, and that a silent Slurm is no
reason to wait."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace

from pipelines.config.types import ClusterConfig
from slurm.client import SlurmClient
from workloads.api import Device


@dataclass(frozen=True)
class Place:
    """The executor chosen, and a line for the person where it is not the one asked for."""

    executor: str
    line: str | None = None

    @property
    def remote(self) -> bool:
        """Whether packs run elsewhere, so that this machine's facts say nothing about them."""
        return self.executor == "slurm"


def choose(cluster: ClusterConfig, environ: Mapping[str, str] | None = None) -> Place:
    """The place for a sweep, asking the controller only where that matters."""
    environ = os.environ if environ is None else environ
    if cluster.executor not in ("auto", "slurm"):
        return Place(cluster.executor)
    if job := environ.get("SLURM_JOB_ID"):
        return Place("local", f"inside Slurm job {job}: measuring in this allocation")
    if shutil.which("sbatch") is None:
        asked = cluster.executor == "slurm"
        return Place("local", "no Slurm is installed here: measuring on this machine" if asked else None)
    if not SlurmClient(cluster.slurm_conf).reachable():
        return Place("local", "Slurm's controller does not answer: measuring on this machine")
    return Place("slurm")


def crowded(cluster: ClusterConfig, threads: int) -> str | None:
    """A line where a pack's own process has no core beside the threads of a trial; it sleeps, but its waking
    would show."""
    if cluster.cpus_per_task > threads:
        return None
    return (
        f"cluster.cpus_per_task={cluster.cpus_per_task} leaves no core for the pack beside"
        f" measure.threads={threads}: ask for {threads + 1}"
    )


def planning_device(cluster: ClusterConfig, place: Place, here: Device) -> Device:
    """The device to plan for: a login node without a GPU may submit to nodes that have some."""
    if not place.remote or not cluster.gpus:
        return here
    if here.type == "cuda":
        return replace(here, count=cluster.gpus)
    return Device(
        "cuda", cluster.gpus, cluster.gpu_type or "", cores=cluster.cpus_per_task, compiler=here.compiler
    )
