"""The stages in their order, each a process of its own: one that hangs or dies takes no other along."""

from __future__ import annotations

import importlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from perfsweep.pipelines.gpu_check.answer import Answer, Here, Line, judged, write
from perfsweep.pipelines.store.files import append_line, read_json_lines
from perfsweep.pipelines.trial.machine import environment, gpus
from perfsweep.workloads.api import Device
from perfsweep.workloads.errors import ConfigError

LINES = "lines.jsonl"


@dataclass(frozen=True)
class Stage:
    """The function that asks a stage's questions, as module:function, and the seconds it may take."""

    examine: str
    limit_s: float


STAGES: Mapping[str, Stage] = {
    "0 facts": Stage("perfsweep.pipelines.gpu_check.facts:examine", 60),
    "1 clock": Stage("perfsweep.pipelines.gpu_check.clock_stage:examine", 120),
    "2 fork and ranks": Stage("perfsweep.pipelines.gpu_check.processes:examine", 300),
    "3 memory": Stage("perfsweep.pipelines.gpu_check.memory_stage:examine", 300),
    "4 kernels": Stage("perfsweep.pipelines.gpu_check.levels:examine_kernels", 600),
    "5 witnesses": Stage("perfsweep.pipelines.gpu_check.levels:examine_witnesses", 1200),
    "6 headlines": Stage("perfsweep.pipelines.gpu_check.headlines:examine", 1800),
}
"""They take ten minutes together; the limits are for what hangs."""


def chosen(numbers: Sequence[int]) -> Mapping[str, Stage]:
    """Choose stages by number; all where none is named.

    Raises
    ------
    ConfigError
        There is no such stage.
    """
    names = list(STAGES)
    if unknown := [number for number in numbers if not 0 <= number < len(names)]:
        raise ConfigError(f"stages={unknown[0]} is no stage of the check; choose from: {', '.join(names)}")
    return {names[number]: STAGES[names[number]] for number in sorted(set(numbers))} or STAGES


PACKAGES = ("perfsweep", "torch", "triton", "numpy", "nvidia-ml-py")


def check(
    folder: Path, device: Device, hear: Callable[[Line], None], stages: Mapping[str, Stage] = STAGES
) -> Answer:
    """Run all stages, tell each line once its stage is over, and write the file of the check."""
    started, lines = time.time(), []
    for name, stage in stages.items():
        for line in _lines(folder / name.replace(" ", "-"), stage):
            lines.append(line.model_copy(update={"stage": name}))
            hear(lines[-1])
    answer = Answer(
        device={
            name: getattr(device, name) for name in ("type", "count", "name", "memory_bytes", "capability")
        },
        driver=gpus.driver_version(),
        versions={name: _version(name) for name in PACKAGES},
        started=started,
        seconds=time.time() - started,
        lines=tuple(lines),
    )
    write(folder, answer)
    return answer


def run_stage(folder: Path, examine: str) -> None:
    """Ask the questions of one stage, and write each line when it is known."""
    module, _, function = examine.partition(":")
    here = Here(environment.device_facts(), folder)
    for line in getattr(importlib.import_module(module), function)(here):
        append_line(folder / LINES, line.model_dump(mode="json"))


def _lines(place: Path, stage: Stage) -> Iterator[Line]:
    """Lines that the process of a stage has written, and one more where it did not come to its end."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    log = place / "log.txt"
    ended = _run(["-m", "perfsweep.pipelines.gpu_check", str(place), stage.examine], log, stage.limit_s)
    if (file := place / LINES).exists():
        yield from (Line.model_validate(values) for _, values in read_json_lines(file, torn_tail=True))
    if ended:
        last = " ".join(log.read_text(errors="replace").strip().splitlines()[-1:])
        yield judged("the stage itself", False, f"it ended {ended}: {last} (see {log})")


def _run(arguments: list[str], log: Path, limit_s: float) -> str:
    """Run Python to its end or for so many seconds, with all it started; how it ended, if not well."""
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        status = process.wait(limit_s)
        return f"with status {status}" if status else ""
    except subprocess.TimeoutExpired:
        return f"not within {limit_s:g} s"
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
