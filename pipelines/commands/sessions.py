"""A sweep seen from another shell, and brought to W&B: from its folder alone, not from what started it."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from rich.console import Console
from yaml import YAMLError

from perfsweep.pipelines.config.tracking import contradictions
from perfsweep.pipelines.config.types import ClusterConfig
from perfsweep.pipelines.execution import launch, shared_job, submitted
from perfsweep.pipelines.execution.submitted import POLL_S, Held, Tail, until_over
from perfsweep.pipelines.exits import ATTENTION, DONE, INTERRUPTED, SOME_FAILED
from perfsweep.pipelines.plan.tally import trials_ahead
from perfsweep.pipelines.publish import publishing
from perfsweep.pipelines.publish.published import published_line, table_of_runs
from perfsweep.pipelines.report import progress_display
from perfsweep.pipelines.report.progress_display import PackStatus, SweepStatus
from perfsweep.pipelines.report.tables import print_json
from perfsweep.pipelines.store import writers
from perfsweep.pipelines.store.files import plain_file
from perfsweep.pipelines.store.progress import StoredTrial
from perfsweep.pipelines.store.progress_read import read_progress
from perfsweep.pipelines.store.provenance import read_sweep_yaml
from perfsweep.pipelines.store.records import Manifest, Outcome, SweepFolder, opened, pack_finished
from perfsweep.pipelines.store.trial_files import PACKED
from perfsweep.pipelines.terminal import console_here, shell_line
from perfsweep.slurm.jobs import Executor, JobState
from perfsweep.workloads.errors import ConfigError, PerfsweepError, harmless

READ_IT = "`perfsweep compare` and `perfsweep status` only read it"
"""What you can do with a sweep that you may not write."""


def status(sweep: str, as_json: bool = False) -> int:
    """Print rounds finished in each pack, trials by outcome, and the state of its job."""
    folder, manifest = opened(sweep)
    executor = _attached(folder, manifest)
    found = _status(sweep, folder, manifest, executor)
    if as_json:
        print_json(found)
    else:
        progress_display.show_status(console_here(), found)
    return found.exit


def _status(path: str, folder: SweepFolder, manifest: Manifest, executor: Executor | None) -> SweepStatus:
    progress = read_progress(folder, manifest)
    jobs = _jobs(executor, manifest) if executor else {}
    every = _counts(progress.every)
    bad = _counts(t for t in progress.every if t.record.outcome is not Outcome.OK)
    packs = []
    for pack in manifest.packs:
        job, note = jobs.get(pack.id, (None, None))
        packs.append(
            PackStatus(
                pack=pack.id,
                arms=len(pack.arms),
                rounds=progress.finished_rounds(pack),
                rounds_planned=progress.rounds_wanted(pack),
                trials=every[pack.id],
                not_ok=bad[pack.id],
                job=job,
                note=note,
            )
        )
    unfinished = SOME_FAILED if any(not pack.is_done for pack in packs) else DONE
    return SweepStatus(
        sweep=manifest.sweep.name,
        workload=manifest.sweep.workload,
        folder=path,
        exit=ATTENTION if executor and executor.held() else unfinished,
        packs=tuple(packs),
        skipped=tuple(progress.damaged),
    )


def wait(sweep: str) -> int:
    """Follow a sweep to its end, submit again what may be, and conclude as the sweep command would."""
    from perfsweep.pipelines.api import Sweep  # brings the report's libraries along
    from perfsweep.pipelines.commands.sweep import conclude

    folder, manifest = opened(sweep)
    console = console_here()
    try:
        with writers.locked(folder, READ_IT):
            broken = _follow(console, folder, manifest)
            submitted.tidy(folder)
    except writers.Taken:
        if not _elsewhere(console, folder):
            return INTERRUPTED
        broken = {}
    except Held as held:
        console.print(f"nothing more will happen by itself: {held}", style="yellow")
        return ATTENTION
    except KeyboardInterrupt:
        executor, left = _attached(folder, manifest), submitted.unsubmitted(folder, manifest)
        progress_display.detach(console, sweep, executor.cancel if executor else lambda: 0, len(left))
        return INTERRUPTED
    return conclude(console, Sweep(folder, manifest), broken)


def cancel(sweep: str, packs: Sequence[str]) -> int:
    """Cancel the sweep's jobs on Slurm, or those of some packs; what they finished stays."""
    folder, manifest = opened(sweep)
    executor = _attached(folder, manifest)
    if executor is None:
        raise ConfigError(
            f"{sweep} has nothing on Slurm; a sweep on this machine is stopped with Ctrl-C where it was"
            " started"
        )
    known = [pack.id for pack in manifest.packs]
    if unknown := sorted(set(packs) - set(known)):
        raise ConfigError(f"{unknown[0]} is no pack of {sweep}; choose from: {', '.join(known)}")
    alive = [job for job, lives in executor.submitted(folder.path).items() if lives]
    cancelled = executor.cancel(_jobs_of(packs, alive) or None)
    told = f"cancelled {cancelled} jobs; finished rounds are kept in {sweep}"
    console_here().print(told, soft_wrap=True)
    return DONE


def pack(sweep: str) -> int:
    """Put the trials of a sweep that ended well into one file, which every command reads."""
    folder, _ = opened(sweep)
    if jobs := [job for names in submitted.alive(folder).values() for job in names]:
        raise ConfigError(
            f"{sweep}: {len(jobs)} jobs may still run on Slurm; wait with `{shell_line('wait', sweep)}`, or"
            f" end them with `{shell_line('cancel', sweep)}`, then pack it"
        )
    try:
        with writers.locked(folder, "make it writable, or pack a copy of it"):
            packed = pack_finished(folder)
    except OSError as error:
        raise ConfigError(f"{sweep} cannot be packed: {error.filename}: {error.strerror}") from error
    told = f"packed {packed} trials into {folder.path / PACKED}" if packed else f"{sweep}: nothing to pack"
    console_here().print(told, soft_wrap=True)
    return DONE


def logs(sweep: str, packs: Sequence[str], follow: bool) -> int:
    """Print what a sweep's packs and their batch scripts printed, and go on while their jobs run."""
    folder, manifest = opened(sweep)
    names = packs or [pack.id for pack in manifest.packs]
    executor = _attached(folder, manifest) if follow else None
    shown: dict[Path, int] = {}
    try:
        while True:
            # Ask first, print then: what a job wrote before it ended is not missed.
            states = executor.look() if executor else {}
            over = not follow or (
                executor is not None
                and all(s.over for job, s in states.items() if {*shared_job.packs_of(job)} & {*names})
            )
            for name in names:
                for text in _new_text(submitted.log_files(folder, name), shown):
                    for line in text.splitlines():
                        print(harmless(f"{name}: {line}"), flush=True)
            if over:
                return DONE
            time.sleep(1.0)
    except KeyboardInterrupt:
        return INTERRUPTED


def _follow(console: Console, folder: SweepFolder, manifest: Manifest) -> dict[str, str]:
    executor = _attached(folder, manifest, console)
    if executor is None:
        return {}
    progress = read_progress(folder, manifest)
    todo = {pack.id: len(progress.unfinished_rounds(pack)) for pack in manifest.packs}
    tails = [Tail(folder, pack.id) for pack in manifest.packs]
    ahead = trials_ahead(manifest, todo)
    with progress_display.live(console, manifest, ahead, folder) as shown:
        states = until_over(executor, tails, shown, lambda text: console.print(text, style="dim"))
    missing = submitted.unsubmitted(folder, manifest)
    if missing:
        console.print(f"never submitted: {', '.join(missing)}; the sweep command does that", style="yellow")
    notes = executor.notes()
    failed = [name for name, state in states.items() if state is not JobState.ENDED]
    return {name: submitted.why(folder, name, notes) for name in failed}


def _elsewhere(console: Console, folder: SweepFolder) -> bool:
    """Another command measures or follows the sweep: wait until it lets go."""
    console.print("another command follows this sweep: waiting for it")
    try:
        while True:
            try:
                with writers.locked(folder, READ_IT):
                    return True
            except writers.Taken:
                time.sleep(POLL_S)
    except KeyboardInterrupt:
        return False


def _attached(folder: SweepFolder, manifest: Manifest, console: Console | None = None) -> Executor | None:
    """Follow what the sweep has elsewhere; None where nothing of it ever was."""
    name = submitted.executor_of(folder)
    if name is None:
        return None

    def say(text: str) -> None:
        if console:
            console.print(text, style="yellow")

    return launch.resume(folder, manifest, replace(_cluster(folder), executor=name), say)


def _cluster(folder: SweepFolder) -> ClusterConfig:
    """The site profile the sweep was started with.

    Raises
    ------
    ConfigError
        sweep.yaml does not hold one.
    """
    try:
        values = read_sweep_yaml(folder.config_file).configuration.cluster
        return OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(ClusterConfig), values))  # type: ignore[return-value]
    except (OSError, AttributeError, UnicodeDecodeError, YAMLError, OmegaConfBaseException) as error:
        reason = (str(error).splitlines() or ["it is empty"])[0]
        raise ConfigError(
            f"{folder.config_file} does not say which cluster the sweep runs on ({reason}); start the sweep"
            " again, which replaces it"
        ) from error


def _jobs(executor: Executor, manifest: Manifest) -> dict[str, tuple[str, str]]:
    """State and note of each pack's job."""
    states, notes = executor.look(), executor.notes()
    found = {}
    living_first = sorted(states, key=lambda job: states[job].over)
    for pack in manifest.packs:
        job = shared_job.job_of(pack.id, living_first)
        found[pack.id] = (states[job].value, notes.get(job, "")) if job else ("not submitted", "")
    return found


def _jobs_of(packs: Sequence[str], alive: Sequence[str]) -> list[str]:
    """Name the jobs that packs are in, of the jobs `alive`.

    Raises
    ------
    ConfigError
        A job has packs that were not named.
    """
    jobs = [shared_job.job_of(pack, alive) or pack for pack in packs]
    for job in jobs:
        if {*shared_job.packs_of(job)} - {*packs}:
            together = " ".join(shared_job.packs_of(job))
            raise ConfigError(f"{together} share one job, which ends as a whole: name all of them")
    return list(dict.fromkeys(jobs))


def _counts(trials: Iterable[StoredTrial]) -> Counter[str]:
    """Count trials of every kind and attempt by their pack."""
    return Counter(trial.record.pack for trial in trials)


def _new_text(files: Iterable[Path], shown: dict[Path, int]) -> Iterator[str]:
    for file in files:
        try:
            with plain_file(file) as text:
                text.seek(shown.get(file, 0))
                content = text.read()
        except FileNotFoundError:
            continue
        shown[file] = shown.get(file, 0) + len(content)
        if content:
            yield content.decode(errors="replace")


def publish(sweep: str, offline: bool) -> int:
    """Copy records to W&B and show how many are there; repeating it changes nothing."""
    folder, manifest = opened(sweep)
    console = console_here()
    for line in contradictions(manifest.sweep.tracking, os.environ):
        console.print(f"W&B: {line}", style="yellow", soft_wrap=True)
    if notice := _compared(folder, manifest):
        console.print(f"W&B: {notice}", style="yellow", soft_wrap=True)
    done = publishing.publish(
        folder,
        mode="offline" if offline else "online",
        say=lambda line: console.print(f"W&B: {line}", soft_wrap=True),
    )
    if done.notice:
        console.print(f"W&B: {done.notice}", style="yellow", soft_wrap=True)
    if done.runs:
        console.print(table_of_runs(done, f"{manifest.sweep.name} in W&B ({done.mode})"))
    console.print(published_line(done, folder), style="yellow" if done.warning else None, soft_wrap=True)
    return DONE if done.complete else SOME_FAILED


def _compared(folder: SweepFolder, manifest: Manifest) -> str | None:
    """Compare what is measured, since W&B orders runs by that; or say why it cannot."""
    from perfsweep.pipelines.analysis.collect import collect  # brings tables along
    from perfsweep.pipelines.analysis.compare import compare

    try:
        progress = read_progress(folder, manifest)
        compare(folder, manifest, collect(folder, manifest, progress), progress)
    except (PerfsweepError, OSError) as error:
        return f"runs are published without their speed: {error}"
    return None


def dashboard(sweep: str, entity: str | None, project: str | None, file: str | None, report: bool) -> int:
    """Build the workspace or the report of a sweep on the server, or write its specification to a file."""
    from perfsweep.pipelines.publish import dashboard as workspaces  # brings tables along
    from perfsweep.pipelines.publish import wandb_report

    folder, manifest = opened(sweep)
    build, what = (wandb_report.build, "report") if report else (workspaces.build, "dashboard")
    where = build(folder, manifest, entity=entity, project=project, file=Path(file) if file else None)
    console_here().print(f"{what}: {where}", soft_wrap=True)
    return DONE
