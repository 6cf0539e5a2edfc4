"""`perfsweep doctor gpu=true`: check the GPU of this machine, or of a job on a cluster, stage by stage."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from perfsweep.pipelines.config.types import ClusterConfig, DoctorCommand
from perfsweep.pipelines.execution import executor_choice
from perfsweep.pipelines.execution.events import until_over
from perfsweep.pipelines.exits import DONE, SOME_FAILED
from perfsweep.pipelines.gpu_check import answer, stages
from perfsweep.pipelines.gpu_check.answer import Answer, Line, Verdict
from perfsweep.pipelines.store import code_snapshot
from perfsweep.pipelines.trial.machine import environment
from perfsweep.slurm import executors
from perfsweep.slurm.jobs import ExecutorContext, Job, JobState
from perfsweep.workloads.errors import RecordError
from perfsweep.workloads.user_environment import changed

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
        console.print(place.line, style="yellow", highlight=False)
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
        highlight=False,
        markup=False,
        soft_wrap=True,
    )


def _conclude(console: Console, found: Answer, file: Path) -> None:
    counts = [sum(line.verdict is verdict for line in found.lines) for verdict in Verdict]
    device = found.device["name"] or found.device["type"]
    console.print(
        f"{device}: {counts[0]} passed, {counts[1]} failed, {counts[2]} need a GPU;"
        f" {found.seconds:.0f} s: {file}",
        highlight=False,
        soft_wrap=True,
    )


def _elsewhere(console: Console, folder: Path, cluster: ClusterConfig, numbers: Sequence[int]) -> Answer:
    """Submit the check as a job, follow it to its end, and read what it found."""
    executor_class = executors.find(cluster.executor)
    if not any(executor_class.submitted(folder).values()):  # else the job that lives is followed
        (folder / answer.FILE).unlink(missing_ok=True)
    code = code_snapshot.take(folder / "code")

    def say(text: str) -> None:
        console.print(text, style="dim", highlight=False, soft_wrap=True)

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
    command = (sys.executable, "-m", "perfsweep.pipelines.gpu_check", str(folder), *map(str, numbers))
    return Job(JOB, command, folder / "log.txt", changed(os.environ, own))
