"""Where a sweep runs: as asked; a place that cannot be used is replaced only where anyone was asked for."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from perfsweep.pipelines.config.types import ClusterConfig
from perfsweep.slurm.errors import ClusterError
from perfsweep.slurm.jobs import EXECUTORS, executor_class
from perfsweep.workloads.api import Device

FALLBACK = "local"
"""The executor that is always there."""


@dataclass(frozen=True)
class Choice:
    """An executor by name, and a line for the person where it is not the one asked for."""

    executor: str
    line: str | None = None

    @property
    def remote(self) -> bool:
        """Whether packs run elsewhere, so that this machine's facts say nothing about them."""
        return executor_class(self.executor).remote


def choose(cluster: ClusterConfig, environ: Mapping[str, str] | None = None, dry_run: bool = False) -> Choice:
    """Choose the executor that was asked for, or with `auto` the first one that does not refuse.

    Inside an allocation everything is measured in it. A dry run shows what would be, usable or not.

    Raises
    ------
    ClusterError
        The one that was asked for refuses.
    """
    asked, line = cluster.executor, None
    for name in EXECUTORS if asked == "auto" else [asked]:
        refusal = executor_class(name).refusal(cluster, os.environ if environ is None else environ)
        if refusal is None:
            return Choice(name, line)
        if refusal.allocation:
            line = f"{refusal.reason}: measuring in this allocation; cluster.submit_inside=true submits jobs"
            return Choice(FALLBACK, line)
        if asked != "auto":
            if dry_run:
                return Choice(name, f"{refusal.reason}: without dry_run=true the sweep would be refused")
            again = "start the same command again later, or " if refusal.installed else ""
            raise ClusterError(
                f"cluster.executor={asked}: {refusal.reason}, so nothing was started; {again}choose"
                f" cluster={FALLBACK} to measure on this machine"
            )
        if refusal.installed:
            line = f"{refusal.reason}: measuring on this machine"
    return Choice(FALLBACK, line)


def crowded(cluster: ClusterConfig, threads: int) -> str | None:
    """Warn where a trial's threads leave no core to the pack's process: it sleeps, but waking would show."""
    if cluster.cpus_per_task > threads:
        return None
    return (
        f"cluster.cpus_per_task={cluster.cpus_per_task}: measure.threads={threads} leaves no core for the"
        f" pack's own process. Ask for {threads + 1}."
    )


def planning_device(cluster: ClusterConfig, choice: Choice, here: Device) -> Device:
    """The device to plan for: of the GPUs of a queue, a login node knows number and maybe type.

    It may have a GPU itself, which says nothing about theirs.
    """
    if not choice.remote or not cluster.gpus:
        return here
    return Device(
        "cuda", cluster.gpus, cluster.gpu_type or "", cores=cluster.cpus_per_task, compiler=here.compiler
    )


def devices_in_reach(here: Device) -> tuple[Device, ...]:
    """Devices that sweeps can be measured on from here: this machine's, and what jobs of a Slurm may get."""
    anywhere = ClusterConfig(executor="auto")
    choice = choose(anywhere)
    return (here, planning_device(anywhere, choice, here)) if choice.remote else (here,)
