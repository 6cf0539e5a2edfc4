"""Levels of toggles on scripts: what an arm counts and computes, and how the pipelines judge it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from scripted import context, run, running

from perfsweep.pipelines.parity import deviations
from perfsweep.pipelines.parity.results import ParityResult, loosest
from perfsweep.pipelines.trial.compiles import CompileCounting
from perfsweep.pipelines.trial.counters import Counting
from perfsweep.workloads.api import Device, Evidence
from perfsweep.workloads.script.config import ScriptConfig
from perfsweep.workloads.script.toggles import CHECKS, EVERY

NAMES = {toggle.name for toggle in EVERY}


@contextmanager
def driven(
    text: str, folder: Path, steps: int = 0, *, device: Device | None = None, **chosen: Any
) -> Iterator[Any]:
    """The script `text`, set up and so many iterations on; `chosen` are levels and fields of its config."""
    (folder / "train.py").write_text(text)
    levels = {name: value for name, value in chosen.items() if name in NAMES}
    fields = {name: value for name, value in chosen.items() if name not in NAMES}
    config = ScriptConfig(path="train.py", folder=str(folder), **fields)
    around = context(folder / "runs", device or Device(cores=2, compiler=True))
    with running(config, around, levels) as script:
        script.prepare_evidence()
        yield run(script, steps)


def evidence(text: str, folder: Path, steps: int = 4, **chosen: Any) -> Evidence:
    """What a script computed after so many iterations."""
    with driven(text, folder, steps, **chosen) as workload:
        return workload.evidence()


def counters(text: str, folder: Path, steps: int = 2, **chosen: Any) -> dict[str, float | None]:
    """All that a counting trial counts of a script."""
    with driven(text, folder, **chosen) as workload:
        with CompileCounting() as compiling:
            run(workload, steps)
        own = workload.counters()
        with Counting() as counting:
            run(workload, 1)
    return {**counting.result(), **compiling.result(), **own}


def verdict(reference: Evidence, arm: Evidence, **levels: Any) -> ParityResult:
    """How the pipelines judge an arm at `levels`."""
    chosen = [toggle.level(levels[toggle.name]) for toggle in EVERY if toggle.name in levels]
    parity, bounds = loosest(chosen, CHECKS)
    return deviations.judge(reference, arm, CHECKS, parity, bounds)


def witness(name: str, value: Any) -> str:
    """The counter that shows that a level acts."""
    counter = next(toggle for toggle in EVERY if toggle.name == name).level(value).witness
    assert counter is not None
    return counter
