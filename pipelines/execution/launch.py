"""Manifest -> executor: write the sweep folder, start unfinished packs, follow their progress."""

from __future__ import annotations

import functools
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any

from pipelines.config.types import ClusterConfig
from pipelines.config.validation import load_workload
from pipelines.execution import shared_job
from pipelines.execution.arm_resources import resources_of
from pipelines.execution.events import Tail, until_over
from pipelines.execution.pack import PackRun
from pipelines.store import attempts, code_snapshot, leftovers
from pipelines.store.files import append_line
from pipelines.store.locks import cannot_write
from pipelines.store.progress import read_progress
from pipelines.store.records import Event, Manifest, Outcome, Pack, SweepFolder
from pipelines.versions import keep
from slurm import executors
from slurm.jobs import Executor, ExecutorContext, Job, JobState
from slurm.site import Shape
from slurm.states import End
from workloads.api import Device, Workload
from workloads.errors import ConfigError, RecordError
from workloads.user_environment import changed

Say = Callable[[str], None]

COLLECT = "collect"
"""Name of the job that writes the comparison when all packs have ended."""

_ENDS = {Outcome.OOM: End.OOM, Outcome.TIMEOUT: End.TIMEOUT}
"""Ends of jobs that `retry` of these outcomes has tried again however often they were."""


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
        The folder cannot be written, or belongs to another workload.
    """
    refuse_other_workload(folder, manifest)
    try:
        folder.path.mkdir(parents=True, exist_ok=True)
        # In a git repository the copies of our code would else be files of the checkout that no commit has,
        # and so be hidden from the trials of every version.
        (folder.path / ".gitignore").write_text("*\n")
        folder.write_manifest(manifest)
        folder.config_file.write_text(config_text)
        code_snapshot.take(folder.code_dir)
        code_snapshot.take_sources(folder.code_dir, manifest.sweep.code, map(Path, manifest.sweep.sources))
        if any(version.environment for version in manifest.sweep.versions):
            code_snapshot.take_libraries(folder.code_dir)
        for version in manifest.sweep.versions:
            keep.keep(folder.code_dir, version, map(Path, manifest.sweep.sources))
    except OSError as error:
        raise cannot_write(folder, error) from error


def launch(
    folder: SweepFolder,
    manifest: Manifest,
    packs: list[Pack],
    cluster: ClusterConfig,
    device: Device,
    retry: tuple[str, ...] = (),
    on_event: Callable[[Event], None] = lambda event: None,
    say: Say = lambda text: None,
    on_counts: Say = lambda text: None,
) -> Launched:
    """Run packs to their end.

    Ctrl-C is passed on: before that, packs of this machine end after their last finished round; those
    elsewhere go on.

    Raises
    ------
    ClusterError
        There is no such slot, or the site refuses the sweep; the message names the field.
    Held
        What is left waits for something that will not come by itself.
    """
    code = code_snapshot.take(folder.code_dir)
    executor = _executor(folder, manifest, cluster, code, say, device, retry)
    jobs = _jobs(folder, manifest, packs, cluster, device, retry, code)
    tails = [Tail(folder, pack.id) for pack in packs]
    if executor.remote:
        executor.submit(jobs)
        if cluster.collect:
            executor.submit_last(_collect_job(folder, _env(folder, manifest, code)))
        states = until_over(executor, tails, on_event, on_counts)
    else:
        _note_local(folder, jobs, cluster.executor)
        states = _run_here(executor, jobs, tails, on_event)
    notes = executor.notes()
    failed = [name for name, state in states.items() if state is not JobState.ENDED]
    return Launched({name: why(folder, name, notes) for name in failed})


def submitted_with(folder: SweepFolder) -> str | None:
    """Name the executor that has jobs of this sweep elsewhere, or had; None where nothing ever was."""
    return next((name for name, cls in _remote_executors() if cls.submitted(folder.path)), None)


def unsubmitted(folder: SweepFolder, manifest: Manifest) -> list[str]:
    """Name the packs that lack rounds and that nobody has submitted since they were asked for."""
    jobs = {name for _, cls in _remote_executors() for name in cls.submitted(folder.path)}
    submitted = {pack for job in jobs for pack in shared_job.packs_of(job)}
    progress = read_progress(folder, manifest)
    return [p.id for p in manifest.packs if p.id not in submitted and progress.unfinished_rounds(p)]


def resume(
    folder: SweepFolder, manifest: Manifest, cluster: ClusterConfig, say: Say = lambda text: None
) -> Executor:
    """Follow what was submitted already, from the files of the sweep alone."""
    code = code_snapshot.latest(folder.code_dir)
    executor = _executor(folder, manifest, cluster, code, say)
    submitted = executor.submitted(folder.path)
    latest = {pack: job for job in submitted for pack in shared_job.packs_of(job)}
    # A job with a pack that went into a later one was over by then, and all it left undone is in later ones.
    current = {job for job in submitted if all(latest[pack] == job for pack in shared_job.packs_of(job))}
    executor.follow(current - {COLLECT})
    return executor


def refuse_other_plan(folder: SweepFolder, manifest: Manifest) -> None:
    """Keep jobs in the queue from finding another plan than the one they were submitted with.

    Raises
    ------
    ConfigError
        Jobs of the sweep may be alive, and `manifest` is not theirs.
    """
    submitted = [cls.submitted(folder.path) for _, cls in _remote_executors()]
    alive = sorted(name for jobs in submitted for name in jobs if jobs[name] and name != COLLECT)
    if not alive or not folder.manifest_file.exists() or folder.read_manifest().measures_the_same(manifest):
        return
    raise ConfigError(
        f"{folder.path}: {_some(alive)} of an earlier plan may still run on Slurm; wait with `perfsweep"
        f" wait {folder.path}`, end them with `perfsweep cancel {folder.path}`, or give this sweep another"
        " name="
    )


def refuse_second_place(folder: SweepFolder, place: str) -> None:
    """Keep a sweep whose packs may run elsewhere from being measured here too.

    Raises
    ------
    ConfigError
        Jobs of the sweep may be alive, and `place` is not the executor that has them.
    """
    for name, cls in _remote_executors():
        jobs = cls.submitted(folder.path)
        alive = sorted(job for job in jobs if jobs[job] and job != COLLECT)
        if alive and name != place:
            raise ConfigError(
                f"{folder.path}: {_some(alive)} may still run on Slurm, so nothing is measured here; wait"
                f" with `perfsweep wait {folder.path}`, or end them with `perfsweep cancel {folder.path}`"
            )


def tidy(folder: SweepFolder) -> None:
    """Remove what killed writers have left, unless jobs elsewhere may still write."""
    if not any(any(cls.submitted(folder.path).values()) for _, cls in _remote_executors()):
        leftovers.remove(folder)


def _some(names: list[str], most: int = 5) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def refuse_other_workload(folder: SweepFolder, manifest: Manifest) -> None:
    """Keep a workload from taking over the folder of another one that has the same name.

    The same sources under the same configuration are the same workload, wherever they were moved to.

    Raises
    ------
    ConfigError
        The folder is the other one's.
    """
    try:
        theirs = folder.read_manifest().sweep
    except RecordError:
        return  # there is none, or none that can be read: planning anew is what mends that
    ours = manifest.sweep
    moved = (theirs.code, theirs.config) == (ours.code, ours.config)
    if moved or not theirs.origin or theirs.origin == ours.origin:
        return
    raise ConfigError(
        f"{folder.path} holds a sweep of {theirs.origin}, and this one is of {ours.origin}; choose another"
        " folder with runs=PATH"
    )


def _remote_executors() -> list[tuple[str, type[Executor]]]:
    every = [(name, executors.find(name)) for name in executors.EXECUTORS]
    return [(name, cls) for name, cls in every if cls.remote]


def _executor(
    folder: SweepFolder,
    manifest: Manifest,
    cluster: ClusterConfig,
    code: Path,
    say: Say = lambda text: None,
    device: Device | None = None,
    retry: tuple[str, ...] = (),
) -> Executor:
    def call(job: Job) -> None:
        PackRun(folder, manifest, manifest.pack(job.name), frozenset(map(Outcome, retry))).run()

    def advanced(name: str, end: End) -> bool:
        if name == COLLECT:
            return False
        packs = [manifest.pack(pack) for pack in shared_job.packs_of(name)]
        # Of packs that share a job nobody knows whose arm took the memory of all.
        out_of_memory = end is End.OOM and len(packs) == 1 and attempts.record_oom(folder, packs[0])
        return out_of_memory or any(attempts.advanced(folder, manifest, pack) for pack in packs)

    gpus = device.count if device and device.type == "cuda" else 0
    forgiven = frozenset(end for outcome, end in _ENDS.items() if outcome in retry)
    digest = code_snapshot.digest(code)
    context = ExecutorContext(
        cluster,
        folder.path,
        manifest.sweep.name,
        code,
        cluster.slots,
        gpus,
        call,
        advanced,
        say,
        forgiven,
        digest,
    )
    return executors.find(cluster.executor).of(context)


def batch_texts(
    folder: SweepFolder,
    manifest: Manifest,
    packs: list[Pack],
    cluster: ClusterConfig,
    device: Device,
    retry: tuple[str, ...],
) -> list[str]:
    """The batch scripts that `launch` would submit."""
    code = folder.code_dir / "DIGEST"
    executor = _executor(folder, manifest, cluster, code)
    return executor.texts(_jobs(folder, manifest, packs, cluster, device, retry, code))


def _run_here(
    executor: Executor, jobs: list[Job], tails: list[Tail], on_event: Callable[[Event], None]
) -> dict[str, JobState]:
    """Run on this machine; Ctrl-C, and Slurm's signal as our allocation ends, end the packs properly."""
    before = (
        {number: signal.signal(number, _as_ctrl_c) for number in (signal.SIGTERM, signal.SIGUSR2)}
        if threading.current_thread() is threading.main_thread()
        else {}
    )
    try:
        executor.submit(jobs)
        return until_over(executor, tails, on_event)
    except BaseException:
        executor.cancel()
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _as_ctrl_c(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _note_local(folder: SweepFolder, jobs: list[Job], executor: str) -> None:
    for job in jobs:
        append_line(
            folder.submissions_file,
            {"time": time.time(), "pack": job.name, "executor": executor, "command": list(job.command)},
        )


def _collect_job(folder: SweepFolder, env: dict[str, str]) -> Job:
    """The job that writes the comparison when the last pack has ended, with nobody logged in."""
    path = folder.path.absolute()
    command = (sys.executable, "-m", "pipelines.cli", "compare", str(path))
    return Job(COLLECT, command, path / "packs" / COLLECT / "log.txt", env)


def _jobs(
    folder: SweepFolder,
    manifest: Manifest,
    packs: list[Pack],
    cluster: ClusterConfig,
    device: Device,
    retry: tuple[str, ...],
    code: Path,
) -> list[Job]:
    """Make a job of each pack, or of several that share one."""
    asked = {pack.id: resources_of(manifest, pack, cluster) for pack in packs}
    per_job = cluster.packs_per_job if executors.find(cluster.executor).remote else 1
    alive = [name for _, cls in _remote_executors() for name, on in cls.submitted(folder.path).items() if on]
    sharing = shared_job.jobs_for(asked, per_job, [name for name in alive if name != COLLECT])
    env = _env(folder, manifest, code)
    return [_job(folder, manifest, names, cluster, device, asked, (*retry,), env) for names in sharing]


def _job(
    folder: SweepFolder,
    manifest: Manifest,
    packs: tuple[str, ...],
    cluster: ClusterConfig,
    device: Device,
    asked: Mapping[str, Mapping[str, Any]],
    retry: tuple[str, ...],
    env: dict[str, str],
) -> Job:
    name = shared_job.name_of(packs)
    module = "pipelines.execution.pack" if len(packs) == 1 else "pipelines.execution.shared_job"
    command = (sys.executable, "-m", module, str(folder.path.absolute()), name, *retry)
    log, own = folder.pack_dir(name) / "log.txt", dict(next((asked[p] for p in packs if p in asked), {}))
    ranks = [_ranks(manifest, manifest.pack(pack), _seen(device, asked.get(pack, {}))) for pack in packs]
    if len(packs) == 1:
        gpus = _least_gpus(manifest, manifest.pack(packs[0]), device)
        return Job(name, command, log, env, ranks[0], own, gpus)
    # Packs get equal shares, so each is given what the largest needs.
    largest = Shape.of(cluster, max(ranks), own)
    own |= {"gpus": largest.gpus * len(packs), "cpus_per_task": largest.cpus * len(packs)}
    return Job(name, command, log, env, resources=own)


def _env(folder: SweepFolder, manifest: Manifest, code: Path) -> dict[str, str]:
    paths = [str(code.absolute()), *manifest.sweep.import_paths, os.environ.get("PYTHONPATH", "")]
    own = {
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
        "PYTHONSAFEPATH": "1",  # otherwise a checkout in the current folder would win over the snapshot
        "OMP_NUM_THREADS": str(manifest.sweep.measure.threads),
        **code_snapshot.sources_env(folder.code_dir, manifest.sweep.code),
    }
    return changed(os.environ, own)


def shapes(manifest: Manifest, cluster: ClusterConfig, device: Device) -> dict[str, Shape]:
    """Resources each pack asks for; `device` is the one that was planned for."""
    asked = {pack.id: resources_of(manifest, pack, cluster) for pack in manifest.packs}
    return {
        pack.id: Shape.of(cluster, _ranks(manifest, pack, _seen(device, asked[pack.id])), asked[pack.id])
        for pack in manifest.packs
    }


def _seen(device: Device, asked: Mapping[str, Any]) -> Device:
    """The device as a pack sees it: with the GPUs that its own resources ask for, where they do."""
    return replace(device, count=asked.get("gpus", device.count)) if device.type == "cuda" else device


def _ranks(manifest: Manifest, pack: Pack, device: Device) -> int:
    """Processes that the largest trial of a pack runs side by side, one GPU each."""
    cls, arms = _arms_of(manifest, pack)
    everywhere = replace(device, count=device.count * manifest.sweep.nodes)
    return max(cls.processes(levels, everywhere) for levels in arms)


def _least_gpus(manifest: Manifest, pack: Pack, device: Device) -> int:
    """GPUs without which a level of a pack's arms cannot act, as one that splits a model over two."""
    if device.count < 2:
        return device.count
    cls, arms = _arms_of(manifest, pack)
    levels = [level for one in arms for level in cls.levels_of(one).values()]
    fewer = (replace(device, count=count) for count in range(1, device.count))
    enough = (here.count for here in fewer if not any(level.unsupported(here) for level in levels))
    return next(enough, device.count)


def _arms_of(manifest: Manifest, pack: Pack) -> tuple[type[Workload], list[Mapping[str, Any]]]:
    """The workload of a pack, and its own levels of each arm."""
    cls = _workload(manifest.sweep.workload, json.dumps(manifest.sweep.config, sort_keys=True))
    return cls, [manifest.sweep.workload_levels(manifest.arm(arm)) for arm in pack.arms]


@functools.lru_cache(maxsize=1)
def _workload(name: str, config: str) -> type[Workload]:
    """The workload of a configuration as JSON: finding it among what is installed costs 30 ms."""
    return load_workload(name, json.loads(config))[0]


def why(folder: SweepFolder, pack: str, notes: Mapping[str, str]) -> str:
    """Tell why a pack broke off: a note, the end of its log, and of what its batch script printed."""
    return "\n".join(filter(None, [notes.get(pack), *_last_lines(folder, pack)]))


def log_files(folder: SweepFolder, pack: str) -> list[Path]:
    """List what a pack and, on a cluster, the batch scripts that were to start it have printed."""
    outputs = [job for _, cls in _remote_executors() for job in cls.outputs(folder.path).items()]
    scripts = [path for job, paths in outputs if pack in (job, *shared_job.packs_of(job)) for path in paths]
    return [*scripts, folder.pack_dir(pack) / "log.txt"]


def _last_lines(folder: SweepFolder, pack: str, lines: int = 8) -> Iterator[str]:
    *scripts, log = log_files(folder, pack)
    texts = {file: _text(file) for file in (log, *scripts[-1:])}
    if texts[log] is None:
        yield "the pack never began to write its log"
    elif not texts[log]:
        full = not os.statvfs(folder.path).f_bavail
        yield "its disk is full" if full else "the log is empty: it was killed, or the disk is full"
    for file, text in texts.items():
        if text:
            yield f"the end of {file}:"
            yield "\n".join(text.splitlines()[-lines:])


def _text(file: Path) -> str | None:
    try:
        return file.read_text(errors="replace").strip()
    except OSError:
        return None
