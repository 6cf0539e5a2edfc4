"""Manifest -> executor: write the sweep folder, start the packs that are not finished, follow their progress."""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import conf
import pipelines
import slurm
import workloads
from pipelines.config import ClusterConfig
from pipelines.files import append_line
from pipelines.pack import PackRun
from pipelines.records import Event, Manifest, Outcome, Pack, SweepFolder
from slurm.jobs import Executor, Job, JobState
from slurm.local import LocalExecutor
from workloads.api import Device
from workloads.errors import ClusterError, ConfigError

POLL_S = 0.25
"""Time between looks at the packs' progress: a look reads a few lines and costs well under a millisecond."""


@dataclass(frozen=True)
class Launched:
    """How a launch ended: packs that broke off, each with the last lines of its log."""

    broken: dict[str, str]

    @property
    def complete(self) -> bool:
        """Whether every pack ran to its end."""
        return not self.broken


def prepare(folder: SweepFolder, manifest: Manifest, config_text: str) -> None:
    """Write everything a pack needs before anything is started.

    Raises
    ------
    ConfigError
        The folder cannot be written.
    """
    try:
        folder.path.mkdir(parents=True, exist_ok=True)
        folder.write_manifest(manifest)
        folder.config_file.write_text(config_text)
        _snapshot(folder)
    except OSError as error:
        raise ConfigError(
            f"runs={folder.path.parent}: cannot write {folder.path} ({error.strerror}); choose another with runs=PATH"
        ) from error


@contextmanager
def locked(folder: SweepFolder) -> Iterator[None]:
    """Keep a second command from measuring the same sweep at the same time.

    Raises
    ------
    ConfigError
        Another command holds the sweep, or the folder cannot be written.
    """
    try:
        folder.path.mkdir(parents=True, exist_ok=True)
        lock = (folder.path / ".lock").open("w")
    except OSError as error:
        raise ConfigError(
            f"runs={folder.path.parent}: cannot write {folder.path} ({error.strerror}); choose another with runs=PATH"
        ) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ConfigError(
                f"{folder.path} is being measured by another command; wait for it, or give this one a name="
            ) from error
        yield


def launch(
    folder: SweepFolder,
    manifest: Manifest,
    packs: list[Pack],
    cluster: ClusterConfig,
    device: Device,
    retry: tuple[str, ...] = (),
    on_event: Callable[[Event], None] = lambda event: None,
) -> Launched:
    """Run packs to their end; Ctrl-C ends them after their last finished round and is passed on."""
    if cluster.executor == "inprocess":
        return _launch_here(folder, manifest, packs, retry, on_event)
    executor = LocalExecutor(_slots(cluster, device))
    tails = [_Tail(folder, pack.id) for pack in packs]
    jobs = [_job(folder, manifest, pack, retry) for pack in packs]
    for job in jobs:
        append_line(
            folder.submissions_file, {"time": time.time(), "pack": job.name, "executor": "local", "command": list(job.command)}
        )
    try:
        executor.submit(jobs)
        states = _follow(executor, tails, on_event)
    except BaseException:
        executor.cancel()
        raise
    return Launched({name: _last_lines(folder, name) for name, state in states.items() if state is not JobState.ENDED})


def _launch_here(
    folder: SweepFolder, manifest: Manifest, packs: list[Pack], retry: tuple[str, ...], on_event: Callable[[Event], None]
) -> Launched:
    for pack in packs:
        tail = _Tail(folder, pack.id)
        PackRun(folder, manifest, pack, frozenset(map(Outcome, retry))).run()
        for event in tail.new():
            on_event(event)
    return Launched({})


def _follow(executor: Executor, tails: list[_Tail], on_event: Callable[[Event], None]) -> dict[str, JobState]:
    while True:
        states = executor.poll()
        for tail in tails:
            for event in tail.new():
                on_event(event)
        if all(state not in (JobState.PENDING, JobState.RUNNING) for state in states.values()):
            return states
        time.sleep(POLL_S)


class _Tail:
    """The events of a pack that have not been shown."""

    def __init__(self, folder: SweepFolder, pack: str) -> None:
        self._folder, self._pack = folder, pack
        self._seen = len(folder.read_events(pack))

    def new(self) -> list[Event]:
        events = self._folder.read_events(self._pack)[self._seen :]
        self._seen += len(events)
        return events


def _slots(cluster: ClusterConfig, device: Device) -> list[dict[str, str]]:
    if device.type == "cuda":
        count = cluster.slots or device.count
        if count > device.count:
            raise ClusterError(f"cluster.slots={count} is more than the {device.count} GPUs of this machine")
        # An allocation on a shared node names the GPUs that are ours; counting from 0 would take somebody else's.
        given = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        names = given.split(",") if given else [str(number) for number in range(device.count)]
        return [{"CUDA_VISIBLE_DEVICES": name.strip()} for name in names[:count]]
    # More than one slot on CPU makes trials disturb one another; whoever asks for it gets it.
    return [{} for _ in range(cluster.slots or 1)]


def _job(folder: SweepFolder, manifest: Manifest, pack: Pack, retry: tuple[str, ...]) -> Job:
    paths = [str(folder.code_dir.absolute()), *manifest.sweep.import_paths, os.environ.get("PYTHONPATH", "")]
    env = {
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
        "PYTHONSAFEPATH": "1",  # otherwise a checkout in the current folder would win over the snapshot
        "OMP_NUM_THREADS": str(manifest.sweep.measure.threads),
    }
    command = (sys.executable, "-m", "pipelines.pack", str(folder.path), pack.id, *retry)
    return Job(pack.id, command, folder.pack_dir(pack.id) / "log.txt", env)


def _snapshot(folder: SweepFolder) -> None:
    """Copy our packages, so that a sweep measures one state of the code however long it takes."""
    fresh = folder.path / f".code.{os.getpid()}"
    for package in (conf, pipelines, slurm, workloads):
        source = Path(str(package.__file__)).parent
        shutil.copytree(source, fresh / source.name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.rmtree(folder.code_dir, ignore_errors=True)
    fresh.replace(folder.code_dir)


def _last_lines(folder: SweepFolder, pack: str, lines: int = 8) -> str:
    try:
        text = (folder.pack_dir(pack) / "log.txt").read_text(errors="replace")
    except OSError:
        return "no log was written"
    return "\n".join(text.strip().splitlines()[-lines:]) or "the log is empty: it was killed, or the disk is full"
