"""`perfsweep doctor` and `check`: whether a cluster, a GPU or a workload is what it is taken for."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, nullcontext
from pathlib import Path

from omegaconf import DictConfig
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from perfsweep.pipelines.check.checked import Checked, checking
from perfsweep.pipelines.check.rules import Finding
from perfsweep.pipelines.config import composition, validation
from perfsweep.pipelines.config.types import ClusterConfig, DoctorCommand
from perfsweep.pipelines.execution import executor_choice
from perfsweep.pipelines.execution.submitted import until_over
from perfsweep.pipelines.exits import DONE, SOME_FAILED
from perfsweep.pipelines.gpu_check import answer, stages
from perfsweep.pipelines.gpu_check.answer import Answer, Line, Verdict
from perfsweep.pipelines.report.progress_display import LOG_EVERY_S
from perfsweep.pipelines.store import code_snapshot
from perfsweep.pipelines.terminal import console_here, whole_table
from perfsweep.pipelines.trial.machine import environment
from perfsweep.slurm.diagnosis import Diagnosis, diagnose
from perfsweep.slurm.errors import ClusterError
from perfsweep.slurm.jobs import ExecutorContext, Job, JobState, executor_class
from perfsweep.slurm.probe import probe
from perfsweep.slurm.site import Shape
from perfsweep.workloads.errors import ConfigError, RecordError
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
    cls = executor_class(cluster.executor)
    if not any(cls.submitted(folder).values()):  # else the job that lives is followed
        (folder / answer.FILE).unlink(missing_ok=True)
    code = code_snapshot.take(folder / "code")

    def say(text: str) -> None:
        console.print(text, style="dim", soft_wrap=True)

    executor = cls.of(ExecutorContext(cluster, folder, JOB, code, say=say))
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


def check(workload: str, values: Sequence[str], toggles: str | None = None) -> int:
    """Run a workload briefly with these values of its configuration; status 1 where it breaks a rule.

    Raises
    ------
    ConfigError
        The configuration is none, or `toggles` holds no name.
    """
    only = None if toggles is None else [name.strip() for name in toggles.split(",") if name.strip()]
    if only == []:
        raise ConfigError("--toggles holds no name; write those of toggles, as --toggles amp,compile")
    cfg = composition.compose("run", [f"workload={workload}", *values])
    return run_check(cfg, values, only)


class Doing:
    """Progress of a check for a waiting user: redrawn on a terminal, a line now and then elsewhere."""

    def __init__(self, console: Console, checked: Checked) -> None:
        self._console, self._checked, self._what = console, checked, "setting up"
        self._started = self._last_line = time.monotonic()

    def __call__(self, what: str) -> None:
        """Take note of what comes next."""
        self._what = what
        if not self._console.is_terminal and time.monotonic() - self._last_line > LOG_EVERY_S:
            self._last_line = time.monotonic()
            self._console.print(str(self))

    def __rich__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        done, spent_s = self._checked.trials, time.monotonic() - self._started
        ahead = max(self._checked.trials_ahead, done + 1)
        left = f", about {spent_s / done * (ahead - done):.0f} s left" if done else ""
        return f"trial {done + 1} of about {ahead}, {spent_s:.0f} s{left}: {self._what}"


def run_check(cfg: DictConfig, values: Sequence[str] = (), toggles: Sequence[str] | None = None) -> int:
    """Run the workload, print what is wrong with it, and return 1 if something is.

    Parameters
    ----------
    values : the words that `cfg` was composed from
    toggles : only their levels; None: all

    Raises
    ------
    ConfigError
        A value or a toggle does not exist, or the baseline needs more time than it has.
    """
    console, started = console_here(), time.monotonic()
    with ExitStack() as stack:
        with console.status(Text(f"importing {cfg.workload.name}")) if console.is_terminal else nullcontext():
            checked = stack.enter_context(checking(cfg, values, toggles))
        device, limit = checked.device, checked.manifest.sweep.measure.timeout_s
        console.print(
            f"checking {checked.name}: {len(checked.manifest.arms)} arms on {device.name or device.type},"
            f" about {checked.trials_ahead} trials of at most {limit:g} s each (measure.timeout_s)"
        )
        findings = []
        checked.tell = doing = Doing(console, checked)
        with console.status(doing) if console.is_terminal else nullcontext():
            for finding in checked.findings():
                console.print(
                    Text.assemble((f"\n{finding.defect.value}", "bold red"), f": {finding.subject}")
                )
                console.print(finding.text)
                findings.append(finding)
        _conclude_check(console, checked, findings)
        if log := checked.keep_log():
            console.print(f"log: {log}", soft_wrap=True)
    seconds = time.monotonic() - started
    console.print(f"{checked.trials} trials in {seconds:.0f} s", style="dim")
    return SOME_FAILED if findings else DONE


def _conclude_check(console: Console, checked: Checked, findings: list[Finding]) -> None:
    console.print("")
    for refused in checked.manifest.refused:
        console.print(f"not checked: {refused.toggle}={refused.level}: {refused.reason}", style="dim")
    for label, reason in checked.left_out.items():
        console.print(f"not checked: {label}: {reason}", style="dim")
    for level, what in checked.choices.items():
        console.print(f"no defect: {level}: {what}")
    if findings:
        console.print(
            f"{len(findings)} {'defects' if len(findings) > 1 else 'defect'} in {checked.name}", style="red"
        )
        return
    console.print(
        f"no defects: {checked.name} is reproducible, its evidence is complete, no state leaks, no host reads"
        f" in a step, and {checked.compared} levels take effect and keep their parity class",
        style="green",
    )
