"""`perfsweep doctor`: what a cluster would refuse, and whether a GPU is what it is taken for."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from omegaconf import DictConfig
from rich import box
from rich.console import Console
from rich.table import Table

from perfsweep.pipelines.config import validation
from perfsweep.pipelines.config.types import ClusterConfig, DoctorCommand
from perfsweep.pipelines.execution import executor_choice
from perfsweep.pipelines.execution.events import until_over
from perfsweep.pipelines.exits import DONE, SOME_FAILED
from perfsweep.pipelines.gpu_check import answer, stages
from perfsweep.pipelines.gpu_check.answer import Answer, Line, Verdict
from perfsweep.pipelines.store import code_snapshot
from perfsweep.pipelines.terminal import console_here, whole_table
from perfsweep.pipelines.trial.machine import environment
from perfsweep.slurm import executors
from perfsweep.slurm.diagnosis import Diagnosis, diagnose
from perfsweep.slurm.errors import ClusterError
from perfsweep.slurm.jobs import ExecutorContext, Job, JobState
from perfsweep.slurm.probe import probe
from perfsweep.slurm.site import Shape
from perfsweep.workloads.errors import RecordError
from perfsweep.workloads.user_environment import changed


def doctor(cfg: DictConfig) -> int:
    """Say what the cluster offers and which parts of the profile it would refuse; status 1 if any."""
    command: DoctorCommand = validation.typed(cfg, DoctorCommand)
    console = console_here()
    if command.gpu:
        return check_gpu(console, command)
    if command.cluster.executor not in ("slurm", "auto"):
        console.print(
            f"cluster.executor={command.cluster.executor}: packs run on this machine; nothing to ask Slurm"
            " about"
        )
        return DONE
    try:
        site = diagnose(command.cluster, command.cluster.slurm_conf)
    except ClusterError as error:
        console.print(f"Slurm does not answer: {str(error).splitlines()[0]}", style="red")
        return SOME_FAILED
    _show(console, command, site)
    if site.refused or not command.probe:
        return SOME_FAILED if site.refused else DONE
    return _probe(console, command)


def _probe(console: Console, command: DoctorCommand) -> int:
    """Ask a node, and print a line for each thing; status 1 if one is not as the profile says."""

    def say(text: str) -> None:
        console.print(text, style="dim")

    modules = ("click", "numpy", "omegaconf", "polars", "pydantic", "torch")
    url = os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai")
    try:
        findings = probe(command.cluster, Path(command.runs), modules, url, say)
    except ClusterError as error:
        console.print(f"FAIL  probe: {error}", style="red", markup=False, soft_wrap=True)
        return SOME_FAILED
    for finding in findings:
        style = {True: "green", False: "red", None: "dim"}[finding.fine]
        console.print(str(finding), style=style, markup=False, soft_wrap=True)
    return SOME_FAILED if any(finding.fine is False for finding in findings) else DONE


def _show(console: Console, command: DoctorCommand, site: Diagnosis) -> None:
    accounting = "works" if site.accounting else "is not available: not needed"
    console.print(f"Slurm {site.version}; accounting (sacct) {accounting}")
    console.print(_partitions(site))
    console.print(", ".join(f"{name} {value}" for name, value in site.limits.items()))
    asked = command.cluster.resources(Shape.of_job(command.cluster))
    console.print(f"\nthis profile asks for {asked}")
    for text in site.warnings:
        console.print(f"beware: {text}", style="yellow")
    if site.refused:
        console.print(f"refused: {site.refused}", style="red")
    else:
        console.print(site.accepted, style="green")


def _partitions(site: Diagnosis) -> Table:
    table = whole_table(
        Table(title="partitions", title_justify="left", box=box.SIMPLE_HEAD),
        *("partition", "time limit", "nodes", "state", "cores", "memory", "gres", "features"),
    )
    for p in site.partitions:
        name, state = f"{p.name} (default)" if p.default else p.name, p.state if p.up else "down"
        table.add_row(name, p.limit, p.nodes, state, p.cores, f"{p.memory_mb} MB", p.gres, p.features)
    return table


JOB = "gpu-check"

_STYLES = {Verdict.PASS: "green", Verdict.FAIL: "red", Verdict.NEEDS_GPU: "dim"}


def check_gpu(console: Console, command: DoctorCommand) -> int:
    """Check, print a line for each question, and return 1 if one failed.

    Raises
    ------
    ClusterError
        The executor that was asked for cannot be used.
    ConfigError
        There is no such stage.
    RecordError
        The job left no answer.
    """
    chosen = stages.chosen(command.stages)
    place = executor_choice.choose(command.cluster)
    if place.line:
        console.print(place.line, style="yellow")
    folder = Path(command.runs).absolute() / JOB
    folder.mkdir(parents=True, exist_ok=True)
    if place.remote:
        command.cluster.executor = place.executor
        found = _elsewhere(console, folder, command.cluster, command.stages)
        for line in found.lines:
            show(console, line)
    else:
        device = environment.device_facts()
        found = stages.check(folder, device, lambda line: show(console, line), chosen)
    _conclude(console, found, folder / answer.FILE)
    return DONE if found.passed else SOME_FAILED


def show(console: Console, line: Line) -> None:
    """Print one line: stage, question, verdict and figure."""
    console.print(
        f"{line.stage:<17} {line.name:<24} {line.verdict.value:<11} {line.text}",
        style=_STYLES[line.verdict],
        markup=False,
        soft_wrap=True,
    )


def _conclude(console: Console, found: Answer, file: Path) -> None:
    counts = [sum(line.verdict is verdict for line in found.lines) for verdict in Verdict]
    device = found.device["name"] or found.device["type"]
    console.print(
        f"{device}: {counts[0]} passed, {counts[1]} failed, {counts[2]} need a GPU;"
        f" {found.seconds:.0f} s: {file}",
        soft_wrap=True,
    )


def _elsewhere(console: Console, folder: Path, cluster: ClusterConfig, numbers: Sequence[int]) -> Answer:
    """Submit the check as a job, follow it to its end, and read what it found."""
    executor_class = executors.find(cluster.executor)
    if not any(executor_class.submitted(folder).values()):  # else the job that lives is followed
        (folder / answer.FILE).unlink(missing_ok=True)
    code = code_snapshot.take(folder / "code")

    def say(text: str) -> None:
        console.print(text, style="dim", soft_wrap=True)

    executor = executor_class.of(ExecutorContext(cluster, folder, JOB, code, say=say))
    executor.submit([_job(folder, code, numbers)])
    state = until_over(executor, [], lambda event: None, say)[JOB]
    if state is not JobState.ENDED or not (folder / answer.FILE).exists():
        why = executor.notes().get(JOB, state.value)
        raise RecordError(f"the job left no answer: {why}; its log is {folder / 'log.txt'}")
    return answer.read(folder / answer.FILE)


def _job(folder: Path, code: Path, numbers: Sequence[int]) -> Job:
    paths = [str(code.absolute()), os.environ.get("PYTHONPATH", "")]
    own = {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "PYTHONSAFEPATH": "1"}
    command = (sys.executable, "-m", "perfsweep.pipelines.gpu_check.stages", str(folder), *map(str, numbers))
    return Job(JOB, command, folder / "log.txt", changed(os.environ, own))
