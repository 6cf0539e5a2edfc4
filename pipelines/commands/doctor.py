"""`perfsweep doctor`: one screen about a cluster and a site profile, before a place in a queue is wasted."""

from __future__ import annotations

import os
from pathlib import Path

from omegaconf import DictConfig
from rich import box
from rich.console import Console
from rich.table import Table

from perfsweep.pipelines.config import validation
from perfsweep.pipelines.config.types import DoctorCommand
from perfsweep.pipelines.terminal import console_here, whole_table
from perfsweep.slurm.diagnosis import Diagnosis, diagnose
from perfsweep.slurm.errors import ClusterError
from perfsweep.slurm.probe import probe
from perfsweep.slurm.site import Shape

FINE, REFUSED = 0, 1


def doctor(cfg: DictConfig) -> int:
    """Say what the cluster offers and what of the profile it would refuse; status 1 if it would."""
    command: DoctorCommand = validation.typed(cfg, DoctorCommand)
    console = console_here()
    if command.gpu:
        from perfsweep.pipelines.commands.doctor_gpu import check_gpu  # brings torch along

        return check_gpu(console, command)
    if command.cluster.executor not in ("slurm", "auto"):
        console.print(
            f"cluster.executor={command.cluster.executor}: packs run on this machine; nothing to ask Slurm"
            " about"
        )
        return FINE
    try:
        site = diagnose(command.cluster, command.cluster.slurm_conf)
    except ClusterError as error:
        console.print(f"Slurm does not answer: {str(error).splitlines()[0]}", style="red", highlight=False)
        return REFUSED
    _show(console, command, site)
    if site.refused or not command.probe:
        return REFUSED if site.refused else FINE
    return _probe(console, command)


def _probe(console: Console, command: DoctorCommand) -> int:
    """Ask a node, and print a line for each thing; status 1 if one is not as the profile says."""

    def say(text: str) -> None:
        console.print(text, style="dim", highlight=False)

    modules = ("click", "numpy", "omegaconf", "polars", "pydantic", "torch")
    url = os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai")
    try:
        findings = probe(command.cluster, Path(command.runs), modules, url, say)
    except ClusterError as error:
        console.print(f"FAIL  probe: {error}", style="red", highlight=False, markup=False, soft_wrap=True)
        return REFUSED
    for finding in findings:
        style = {True: "green", False: "red", None: "dim"}[finding.fine]
        console.print(str(finding), style=style, highlight=False, markup=False, soft_wrap=True)
    return REFUSED if any(finding.fine is False for finding in findings) else FINE


def _show(console: Console, command: DoctorCommand, site: Diagnosis) -> None:
    accounting = "works" if site.accounting else "is not available: not needed"
    console.print(f"Slurm {site.version}; accounting (sacct) {accounting}")
    console.print(_partitions(site))
    console.print(", ".join(f"{name} {value}" for name, value in site.limits.items()), highlight=False)
    asked = command.cluster.resources(Shape.of_job(command.cluster))
    console.print(f"\nthis profile asks for {asked}", highlight=False)
    for text in site.warnings:
        console.print(f"beware: {text}", style="yellow", highlight=False)
    if site.refused:
        console.print(f"refused: {site.refused}", style="red", highlight=False)
    else:
        console.print(site.accepted, style="green", highlight=False)


def _partitions(site: Diagnosis) -> Table:
    table = whole_table(
        Table(title="partitions", title_justify="left", box=box.SIMPLE_HEAD),
        *("partition", "time limit", "nodes", "state", "cores", "memory", "gres", "features"),
    )
    for p in site.partitions:
        name, state = f"{p.name} (default)" if p.default else p.name, p.state if p.up else "down"
        table.add_row(name, p.limit, p.nodes, state, p.cores, f"{p.memory_mb} MB", p.gres, p.features)
    return table
