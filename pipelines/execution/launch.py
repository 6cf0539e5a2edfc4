"""Manifest -> executor: write the sweep folder, start unfinished packs, follow their progress."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from perfsweep.checksums import append_line
from perfsweep.pipelines.config.types import ClusterConfig
from perfsweep.pipelines.execution import shared_job
from perfsweep.pipelines.execution.pack import PackRun
from perfsweep.pipelines.execution.pack_jobs import collect_job, environment, jobs_of
from perfsweep.pipelines.execution.submitted import (
    COLLECT,
    Tail,
    alive,
    refuse_other_workload,
    until_over,
    why,
)
from perfsweep.pipelines.store import code_snapshot, writers
from perfsweep.pipelines.store.files import write_atomically
from perfsweep.pipelines.store.records import Event, Manifest, Outcome, Pack, SweepFolder
from perfsweep.pipelines.store.writers import cannot_write
from perfsweep.pipelines.versions import tree
from perfsweep.slurm.jobs import Executor, ExecutorContext, Job, JobState, executor_class
from perfsweep.slurm.states import End
from perfsweep.workloads.api import Device

Say = Callable[[str], None]

_ENDS = {Outcome.OOM: End.OOM, Outcome.TIMEOUT: End.TIMEOUT}
"""Ends of jobs that are tried again without a limit if `retry` names their outcome."""


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
        # Without it, copies of our code in a git repository would be untracked files, and untracked files are
        # hidden from the trials of every version.
        (folder.path / ".gitignore").write_text("*\n")
        folder.write_manifest(manifest)
        write_atomically(folder.config_file, config_text.encode())
        code_snapshot.take(folder.code_dir, folder.shared_code_dir)
        code_snapshot.take_sources(folder.code_dir, manifest.sweep.code, map(Path, manifest.sweep.sources))
        if any(version.environment for version in manifest.sweep.versions):
            code_snapshot.take_libraries(folder.code_dir)
        for version in manifest.sweep.versions:
            tree.keep(folder.code_dir, version, map(Path, manifest.sweep.sources))
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
) -> dict[str, str]:
    """Run packs to their end; the ones that ended early, each with the last lines of its log.

    After Ctrl-C packs of this machine end and keep their finished rounds, other jobs go on, and
    `KeyboardInterrupt` is raised.

    Raises
    ------
    ClusterError
        There is no such slot, or the site refuses the sweep; the message names the field.
    Held
        The remaining jobs wait for something that needs the user's action.
    """
    code = code_snapshot.take(folder.code_dir, folder.shared_code_dir)
    executor = _executor(folder, manifest, cluster, code, say, device, retry)
    jobs = jobs_of(folder, manifest, packs, cluster, device, retry, code)
    tails = [Tail(folder, pack.id) for pack in packs]
    if executor.remote:
        executor.submit(jobs)
        if cluster.collect:
            executor.submit_last(collect_job(folder, environment(folder, manifest, code)))
        states = until_over(executor, tails, on_event, on_counts)
    else:
        for job in jobs:
            about = {"pack": job.name, "executor": cluster.executor, "command": list(job.command)}
            append_line(folder.submissions_file, {"time": time.time(), **about})
        states = _run_here(executor, jobs, tails, on_event)
    notes = executor.notes()
    failed = [name for name, state in states.items() if state is not JobState.ENDED]
    return {name: why(folder, name, notes) for name in failed}


def resume(
    folder: SweepFolder, manifest: Manifest, cluster: ClusterConfig, say: Say = lambda text: None
) -> Executor:
    """Follow the jobs that were submitted before; only the files of the sweep are needed."""
    code = code_snapshot.latest(folder.code_dir)
    executor = _executor(folder, manifest, cluster, code, say)
    submitted = executor.submitted(folder.path)
    latest = {pack: job for job in submitted for pack in shared_job.packs_of(job)}
    # A job with a pack that a later job has too had ended by then: later jobs do all that it left undone.
    current = {job for job in submitted if all(latest[pack] == job for pack in shared_job.packs_of(job))}
    executor.follow(current - {COLLECT})
    return executor


def settle(
    folder: SweepFolder, manifest: Manifest, cluster: ClusterConfig, say: Say = lambda text: None
) -> None:
    """Note which jobs of a complete sweep have ended, and remove their leftover files after that."""
    if any(alive(folder).values()):
        resume(folder, manifest, cluster, say).settle()


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
        # If several packs share a job, it is unknown whose arm used up the memory.
        out_of_memory = end is End.OOM and len(packs) == 1 and writers.record_oom(folder, packs[0])
        return out_of_memory or any(writers.advanced(folder, manifest, pack) for pack in packs)

    gpus = device.count if device and device.type == "cuda" else 0
    forgiven = frozenset(end for outcome, end in _ENDS.items() if outcome in retry)
    digest = code_snapshot.digest(code)
    context = ExecutorContext(
        *(cluster, folder.path, manifest.sweep.name, code, cluster.slots, gpus),
        *(call, advanced, say, forgiven, digest),
    )
    return executor_class(cluster.executor).of(context)


def batch_texts(
    folder: SweepFolder,
    manifest: Manifest,
    packs: list[Pack],
    cluster: ClusterConfig,
    device: Device,
    retry: tuple[str, ...],
) -> list[str]:
    """The batch scripts that `launch` would submit."""
    code = folder.code_dir / "DIGEST" / code_snapshot.ARCHIVE
    executor = _executor(folder, manifest, cluster, code)
    return executor.texts(jobs_of(folder, manifest, packs, cluster, device, retry, code))


def _run_here(
    executor: Executor, jobs: list[Job], tails: list[Tail], on_event: Callable[[Event], None]
) -> dict[str, JobState]:
    """Run on this machine; Ctrl-C, and Slurm's signal before our allocation ends, end the packs properly."""
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
