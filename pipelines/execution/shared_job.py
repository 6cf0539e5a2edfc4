"""Packs that share one job, side by side on a node: each has GPUs and cores of its own.

Sites that hand out whole nodes of 4 or 8 GPUs charge for all of them. A shared job is called after its packs,
``p000+p001``. Run with ``FOLDER p000+p001 [RETRY]...``: it starts a pack for each, passes signals on, and
ends when all have ended.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from types import FrameType

from perfsweep.pipelines.execution.pack import CANNOT_WRITE, STUCK, TRY_AGAIN
from perfsweep.pipelines.store.records import SweepFolder
from perfsweep.pipelines.trial.machine import gpus

AND = "+"

_FORWARDED = (signal.SIGTERM, signal.SIGUSR2, signal.SIGINT)

LAST_LINES = 3
"""Of the log of each pack that did not end well, in the log of the job."""


def name_of(packs: Iterable[str]) -> str:
    """Name the job of these packs."""
    return AND.join(packs)


def packs_of(job: str) -> list[str]:
    """List the packs of a job."""
    return job.split(AND)


def job_of(pack: str, jobs: Iterable[str]) -> str | None:
    """Find the job that a pack is in, None where it is in none."""
    return next((job for job in jobs if pack in packs_of(job)), None)


def jobs_for(
    resources: Mapping[str, Mapping[str, object]], per_job: int, alive: Collection[str]
) -> list[tuple[str, ...]]:
    """Share packs out to jobs; those that a living job has already stay together.

    Parameters
    ----------
    resources : what each pack asks for; packs share a job only where that is the same
    per_job : most packs of a job
    alive : names of jobs that may still run
    """
    living = [tuple(packs_of(job)) for job in alive if set(packs_of(job)) & resources.keys()]
    taken = {pack for job in living for pack in job}
    free = sorted((repr(sorted(resources[pack].items())), pack) for pack in resources if pack not in taken)
    fresh = []
    for _, alike in groupby(free, key=lambda pair: pair[0]):
        packs = [pack for _, pack in alike]
        fresh += [tuple(packs[start : start + per_job]) for start in range(0, len(packs), per_job)]
    return sorted([*living, *fresh])


def shares(things: Sequence[str], count: int) -> list[list[str]]:
    """Cut a list into equal shares, in order; what is left over is nobody's."""
    size = len(things) // count
    return [list(things[i * size : (i + 1) * size]) for i in range(count)]


def combined(statuses: Collection[int]) -> int:
    """One status for several: that of a pack which must be tried again wins, then the worst."""
    if TRY_AGAIN in statuses:
        return TRY_AGAIN
    return next((s for s in (STUCK, *sorted(statuses, reverse=True)) if s in statuses), 0)


class SharedJob:
    """The packs of one job, as processes."""

    def __init__(self, folder: SweepFolder, packs: Sequence[str], retry: Sequence[str]) -> None:
        self._folder, self._packs, self._retry = folder, packs, retry
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._signals: list[int] = []

    def run(self) -> int:
        """Run all packs to their ends; the status of the job."""
        for number in _FORWARDED:
            signal.signal(number, self._forward)
        not_started = self._start_all()
        for number in tuple(self._signals):  # heard while they were started; to forward notes it again
            self._forward(number, None)
        statuses = {pack: _status(process.wait()) for pack, process in self._running.items()}
        for pack, status in statuses.items():
            if status:
                self._tell(pack, status)
        return combined([*not_started, *statuses.values()])

    def _start_all(self) -> list[int]:
        """Start each pack on its share; a status for each whose log cannot be opened."""
        statuses = []
        cores = shares(sorted(map(str, os.sched_getaffinity(0)), key=int), len(self._packs))
        for pack, env, own in zip(self._packs, self._environments(), cores, strict=True):
            try:
                self._running[pack] = self._start(pack, env)
            except OSError as error:
                print(f"{error.filename}: {error.strerror}; mend this and start the sweep again", flush=True)
                statuses.append(CANNOT_WRITE)
                continue
            if own:
                os.sched_setaffinity(self._running[pack].pid, map(int, own))
        return statuses

    def _environments(self) -> Iterator[dict[str, str]]:
        """What each pack sees: its share of the GPUs, as Slurm names them, or else as the node does."""
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        # Without the variable all packs would see all GPUs, and work on the first.
        names = [gpu.uuid for gpu in gpus.visible()] if visible is None else visible.split(",")
        for own in shares([name for name in names if name], len(self._packs)):
            yield {"CUDA_VISIBLE_DEVICES": ",".join(own)}

    def _start(self, pack: str, env: Mapping[str, str]) -> subprocess.Popen[bytes]:
        own = ["perfsweep.pipelines.own_code", "perfsweep.pipelines.execution.pack"]
        command = [sys.executable, "-m", *own, str(self._folder.path), pack]
        log = self._folder.pack_dir(pack) / "log.txt"
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            return subprocess.Popen(
                [*command, *self._retry],
                env={**os.environ, **env},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    def _forward(self, number: int, frame: FrameType | None) -> None:
        self._signals.append(number)
        for process in self._running.values():
            if process.poll() is None:
                process.send_signal(number)

    def _tell(self, pack: str, status: int) -> None:
        try:
            lines = (self._folder.pack_dir(pack) / "log.txt").read_text(errors="replace").splitlines()
        except OSError as error:
            lines = [f"{error.filename}: {error.strerror}"]
        print(f"{pack} ended with status {status}; the end of its log:")
        print("\n".join(lines[-LAST_LINES:]), flush=True)


def _status(code: int) -> int:
    return 128 - code if code < 0 else code


def main(arguments: list[str]) -> int:
    """Run the packs of a job; the status of the one that needs most."""
    folder, job, *retry = arguments
    return SharedJob(SweepFolder(folder), packs_of(job), retry).run()
