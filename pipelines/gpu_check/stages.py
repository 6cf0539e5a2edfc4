"""The stages in their order, each a process of its own: one that hangs or dies takes no other along.

``python -m perfsweep.pipelines.gpu_check.stages FOLDER NUMBER...`` runs them as a job, and with a stage's
function in place of the numbers that stage.
"""

from __future__ import annotations

import importlib
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from perfsweep.pipelines.gpu_check.answer import Answer, Here, Line, judged, write
from perfsweep.pipelines.trial.machine import environment, gpus
from perfsweep.pipelines.worker_process import Worker, answers, last_line
from perfsweep.workloads.api import Device
from perfsweep.workloads.errors import ConfigError


@dataclass(frozen=True)
class Stage:
    """The function that asks a stage's questions, as module:function, and the seconds it may take."""

    examine: str
    limit_s: float


STAGES: Mapping[str, Stage] = {
    "0 facts": Stage("perfsweep.pipelines.gpu_check.device_stages:examine_facts", 60),
    "1 clock": Stage("perfsweep.pipelines.gpu_check.device_stages:examine_clock", 120),
    "2 fork and ranks": Stage("perfsweep.pipelines.gpu_check.trial_stages:examine_processes", 300),
    "3 memory": Stage("perfsweep.pipelines.gpu_check.trial_stages:examine_memory", 300),
    "4 kernels": Stage("perfsweep.pipelines.gpu_check.workload_stages:examine_kernels", 480),
    "5 witnesses": Stage("perfsweep.pipelines.gpu_check.workload_stages:examine_witnesses", 720),
    "6 headlines": Stage("perfsweep.pipelines.gpu_check.workload_stages:examine_headlines", 720),
}
"""They take ten minutes together; the limits, 45 minutes in all, are for what hangs."""


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


END_S = 10.0
"""For the end of a stage's process, once it has answered."""

PACKAGES = ("perfsweep", "torch", "triton", "numpy", "nvidia-ml-py")


def check(
    folder: Path, device: Device, hear: Callable[[Line], None], stages: Mapping[str, Stage] = STAGES
) -> Answer:
    """Run all stages, tell each line once its stage has ended, and write the file of the check."""
    started, began, lines = time.time(), time.monotonic(), []
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
        seconds=time.monotonic() - began,
        lines=tuple(lines),
    )
    write(folder, answer)
    return answer


def run_stage(folder: Path, examine: str) -> None:
    """Ask the questions of one stage, and answer with each line when it is known."""
    stream = answers()
    module, _, function = examine.partition(":")
    here = Here(environment.device_facts(), folder)
    for line in getattr(importlib.import_module(module), function)(here):
        print(line.model_dump_json(), file=stream, flush=True)


def _lines(place: Path, stage: Stage) -> Iterator[Line]:
    """Lines of the process of a stage, and one more where it did not come to its end."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    command = [sys.executable, "-m", "perfsweep.pipelines.gpu_check.stages", str(place), stage.examine]
    deadline, file = time.monotonic() + stage.limit_s, place / "log.txt"
    with file.open("w+b") as log:
        worker, late = Worker(command, {**os.environ, **gpus.BY_BUS}, log), True
        try:
            while (line := worker.answer(max(0.0, deadline - time.monotonic()))) is not None:
                yield Line.model_validate(line)
            late = not worker.gone
        finally:
            status = worker.end(0.0 if late else END_S)
        if late or status:
            how = f"not within {stage.limit_s:g} s" if late else f"with status {status}"
            yield judged("the stage itself", False, f"it ended {how}: {last_line(log)} (see {file})")


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def main(arguments: list[str]) -> int:
    """Run stages as processes, or the questions of one; the status says only that an answer was written."""
    folder, *rest = Path(arguments[0]), *arguments[1:]
    if rest and not rest[0].isdigit():
        run_stage(folder, rest[0])
    else:
        numbers = chosen(list(map(int, rest)))
        check(folder, environment.device_facts(), lambda line: print(line, flush=True), numbers)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
