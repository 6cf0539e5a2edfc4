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
from types import FrameType, ModuleType
from typing import Any, TypeVar

from perfsweep.pipelines.execution.pack import CANNOT_WRITE, STUCK, TRY_AGAIN
from perfsweep.pipelines.store.records import SweepFolder
from perfsweep.pipelines.trial.machine import gpus
from perfsweep.pipelines.trial.machine.gpus import handles

AND = "+"

Thing = TypeVar("Thing")

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
    """Share packs out to jobs; packs of a living job stay together.

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


def shares(things: Sequence[Thing], count: int) -> list[list[Thing]]:
    """Cut a list into equal shares, in order; what is left over is in no share."""
    size = len(things) // count
    return [list(things[i * size : (i + 1) * size]) for i in range(count)]


def near_shares(cores: Sequence[int], near: Sequence[Collection[int]]) -> list[list[int]]:
    """Give each pack as many cores, of those near its GPUs as long as there are any; some may be left over.

    Parameters
    ----------
    cores : all of the job, in order
    near : for each pack the cores that it had best get
    """
    size, left = len(cores) // len(near), [*cores]
    given: list[list[int]] = [[] for _ in near]
    for wanted in (near, [cores] * len(near)):
        for own, best in zip(given, wanted, strict=True):
            more = [core for core in left if core in best][: size - len(own)]
            own += more
            left = [core for core in left if core not in more]
    return given


def cores_near(gpus: int) -> list[set[int]]:
    """Ask NVML for the cores of the socket that each visible GPU is on; empty where it does not say."""
    words = -(-(os.cpu_count() or 1) // _BITS)
    with handles() as (nvml, found):
        masks = [_mask(nvml, handle, words) for handle in found] if nvml else []
    every = [{core for core in range(words * _BITS) if mask >> core & 1} for mask in masks]
    return every if len(every) == gpus else []


_BITS = 64


def _mask(nvml: ModuleType, handle: Any, words: int) -> int:
    """One bit for each core, the first one lowest; zero where the driver does not answer."""
    try:
        parts = nvml.nvmlDeviceGetCpuAffinity(handle, words)
    except nvml.NVMLError:
        return 0
    return sum(int(part) << (_BITS * number) for number, part in enumerate(parts))


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
        cores = self._cores()
        for pack, env, own in zip(self._packs, self._environments(), cores, strict=True):
            try:
                self._running[pack] = self._start(pack, env)
            except OSError as error:
                print(f"{error.filename}: {error.strerror}; fix this and start the sweep again", flush=True)
                statuses.append(CANNOT_WRITE)
                continue
            if own:
                os.sched_setaffinity(self._running[pack].pid, own)
        return statuses

    def _cores(self) -> list[list[int]]:
        """Cores of each pack, those of its GPUs' socket first: every trial records which it had."""
        cores, names = sorted(os.sched_getaffinity(0)), self._gpus()
        near = cores_near(len(names)) if names else []
        of_each = shares(near, len(self._packs)) if near else [[]] * len(self._packs)
        return near_shares(cores, [set().union(*own) for own in of_each])

    def _gpus(self) -> list[str]:
        """The GPUs of the job, as Slurm names them, or else as the node does.

        Without the variable all packs would see all GPUs, and work on the first.
        """
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        names = [gpu.uuid for gpu in gpus.visible()] if visible is None else visible.split(",")
        return [name for name in names if name]

    def _environments(self) -> Iterator[dict[str, str]]:
        """What each pack sees: its share of the GPUs."""
        names = self._gpus()
        for own in shares(names, len(self._packs)):
            yield {"CUDA_VISIBLE_DEVICES": ",".join(own)} if names else {}

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
