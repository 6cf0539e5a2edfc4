"""Stand-ins for Slurm's programs, for what a real Slurm does not do on demand, and executors on them."""

from __future__ import annotations

import time
from pathlib import Path

from perfsweep.slurm.executor import SlurmExecutor
from perfsweep.slurm.jobs import ExecutorContext, Job
from perfsweep.slurm.site import SiteProfile

ROOT = Path(__file__).parents[2]
PROGRAMS = ("sbatch", "squeue", "sacct", "scontrol", "sinfo", "srun", "scancel")


def job(name: str = "p000", ranks: int = 1) -> Job:
    return Job(name, ("true",), Path("log.txt"), {}, ranks)


def executor_on(site: SiteProfile, folder: Path) -> SlurmExecutor:
    return SlurmExecutor.of(ExecutorContext(site, folder, "demo", ROOT / "src"))


def program(folder: Path, name: str, body: str) -> None:
    (folder / name).write_text(f'#!/bin/sh\necho "$@" >> {folder}/{name}.calls\n{body}\n')
    (folder / name).chmod(0o755)


def calls(folder: Path, name: str) -> int:
    file = folder / f"{name}.calls"
    return len(file.read_text().splitlines()) if file.exists() else 0


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = time.time()

    def __call__(self) -> float:
        return self.now


def on_stand_ins(tmp_path: Path, **fields: object) -> tuple[SlurmExecutor, Clock]:
    """An executor on a folder, and the clock that it goes by."""
    ex = executor_on(SiteProfile(poll_min_s=0.01, fs_delay_s=1.0, **fields), tmp_path / "sweep")  # type: ignore[arg-type]
    clock = Clock()
    ex._clock = ex._submitter._clock = clock
    return ex, clock
