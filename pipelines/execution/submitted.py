"""Jobs that were submitted: which may still run, their events until they have ended, why one broke off."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from perfsweep.pipelines.execution import shared_job
from perfsweep.pipelines.store import writers
from perfsweep.pipelines.store.files import refusal
from perfsweep.pipelines.store.progress_read import read_progress
from perfsweep.pipelines.store.records import Event, Manifest, SweepFolder
from perfsweep.pipelines.terminal import shell_line
from perfsweep.pipelines.units import few
from perfsweep.slurm.jobs import EXECUTORS, Executor, JobState, executor_class
from perfsweep.workloads.errors import ConfigError, RecordError

COLLECT = "collect"
"""Name of the job that writes the comparison when all packs have ended."""


def remote_executors() -> list[tuple[str, type[Executor]]]:
    """Name the executors whose jobs outlive the command that submits them."""
    every = [(name, executor_class(name)) for name in EXECUTORS]
    return [(name, cls) for name, cls in every if cls.remote]


def alive(folder: SweepFolder) -> dict[str, list[str]]:
    """Name the jobs of packs that may still run, by executor."""
    submitted = {name: cls.submitted(folder.path) for name, cls in remote_executors()}
    return {
        name: sorted(job for job, on in jobs.items() if on and job != COLLECT)
        for name, jobs in submitted.items()
    }


def executor_of(folder: SweepFolder) -> str | None:
    """Name the executor that has jobs of this sweep elsewhere, or had; None where nothing ever was."""
    return next((name for name, cls in remote_executors() if cls.submitted(folder.path)), None)


def unsubmitted(folder: SweepFolder, manifest: Manifest) -> list[str]:
    """Name the packs that lack rounds and that were not submitted since they were asked for."""
    jobs = {name for _, cls in remote_executors() for name in cls.submitted(folder.path)}
    submitted = {pack for job in jobs for pack in shared_job.packs_of(job)}
    progress = read_progress(folder, manifest)
    return [p.id for p in manifest.packs if p.id not in submitted and progress.unfinished_rounds(p)]


def refuse_other_plan(folder: SweepFolder, manifest: Manifest) -> None:
    """Keep jobs in the queue from finding another plan than the one they were submitted with.

    Raises
    ------
    ConfigError
        Jobs of the sweep may be alive, and `manifest` is not theirs.
    """
    jobs = sorted(name for names in alive(folder).values() for name in names)
    if not jobs or not folder.manifest_file.exists():
        return
    try:
        theirs = folder.read_manifest()
    except RecordError:
        return  # jobs that start cannot read it either: planning again repairs that
    if theirs.measures_the_same(manifest):
        return
    raise ConfigError(
        f"{folder.path}: {few(jobs)} of an earlier plan may still run on Slurm; wait with"
        f" `{shell_line('wait', folder.path)}`, end them with `{shell_line('cancel', folder.path)}`, or give"
        " this sweep another name="
    )


def refuse_second_place(folder: SweepFolder, place: str) -> None:
    """Keep a sweep whose packs may run elsewhere from being measured here too.

    Raises
    ------
    ConfigError
        Jobs of the sweep may be alive, and `place` is not the executor that has them.
    """
    for executor, jobs in alive(folder).items():
        if jobs and executor != place:
            raise ConfigError(
                f"{folder.path}: {few(jobs)} may still run on Slurm, so nothing is measured here; wait"
                f" with `{shell_line('wait', folder.path)}`, or end them with"
                f" `{shell_line('cancel', folder.path)}`"
            )


def refuse_other_workload(folder: SweepFolder, manifest: Manifest) -> None:
    """Keep a workload from taking over the folder of another one that has the same name.

    The same sources under the same configuration are the same workload, wherever they were moved to.

    Raises
    ------
    ConfigError
        The folder belongs to the other workload.
    """
    try:
        theirs = folder.read_manifest().sweep
    except RecordError:
        return  # there is none, or none that can be read: planning again repairs that
    ours = manifest.sweep
    moved = (theirs.code, theirs.config) == (ours.code, ours.config)
    if moved or not theirs.origin or theirs.origin == ours.origin:
        return
    raise ConfigError(
        f"{folder.path} holds a sweep of {theirs.origin}, and this one is of {ours.origin}; choose another"
        " folder with runs=PATH"
    )


def tidy(folder: SweepFolder) -> None:
    """Remove what killed writers have left, unless jobs elsewhere may still write.

    Raises
    ------
    OSError
        The folder is no longer there.
    """
    if not folder.manifest_file.exists():
        raise writers.vanished(folder.path)
    if not any(any(cls.submitted(folder.path).values()) for _, cls in remote_executors()):
        writers.remove_leftovers(folder)


POLL_S = 0.25
"""Time between looks at the packs' progress; Slurm itself is asked as seldom as the site profile says."""

COUNTS_S = 8.0
"""Time between two lines on how many jobs run and wait."""

HELD_POLLS = 40
"""Looks after which jobs that will not start by themselves are left to the user."""


LOOKS = 2
"""Files of events that are looked at every POLL_S, however many packs run: each look is a question to a file
system that all of a cluster share."""


class Tail:
    """The events of a pack that have not been shown."""

    def __init__(self, folder: SweepFolder, pack: str) -> None:
        self._folder, self.pack = folder, pack
        self._size = _size(folder.events_file(pack))
        self._next = folder.read_events(pack)[1] if self._size else 0

    def new(self) -> list[Event]:
        """Events since the last call; what was read is not read again, however many there are."""
        size = _size(self._folder.events_file(self.pack))
        if size == self._size:
            return []
        self._size, start = size, min(self._next, size)  # it may have been cut off
        events, self._next = self._folder.read_events(self.pack, start)
        return events


class Turns:
    """Tails of many packs: running ones take turns, and each that ends is looked at once more."""

    def __init__(self, tails: Iterable[Tail]) -> None:
        self._left = {tail.pack: tail for tail in tails}
        self._turn = 0

    def new(self, states: Mapping[str, JobState]) -> Iterator[Event]:
        """Read what some of the packs have noted since they were looked at."""
        over = [name for name in self._left if name in states and states[name].over]
        for tail in [self._left.pop(name) for name in over] + self._next(states):
            yield from tail.new()

    def _next(self, states: Mapping[str, JobState]) -> list[Tail]:
        running = [tail for name, tail in self._left.items() if states.get(name) is JobState.RUNNING]
        tails = running or [*self._left.values()]  # Slurm is asked less often than we look
        first = self._turn % max(1, len(tails))
        self._turn = first + LOOKS
        return [*tails[first:], *tails[:first]][:LOOKS]


class Held(Exception):
    """Nothing more will happen by itself; `notes` says why, by job."""

    def __init__(self, notes: dict[str, str]) -> None:
        super().__init__("; ".join(f"{name}: {note}" for name, note in notes.items()))
        self.notes = notes


def until_over(
    executor: Executor,
    tails: Iterable[Tail],
    on_event: Callable[[Event], None],
    on_counts: Callable[[str], None] = lambda text: None,
) -> dict[str, JobState]:
    """Follow all jobs to their end; the state of each.

    `on_counts` hears now and then how many of them run and wait, and what for, when that has changed.

    Raises
    ------
    Held
        All that is left waits for something that will not come by itself.
    """
    turns = Turns(tails)
    held_for = 0
    counts, counted = "", float("-inf")
    while True:
        states = executor.poll()
        for event in turns.new(states):
            on_event(event)
        if time.monotonic() - counted >= COUNTS_S and (new := executor.counts()) not in ("", counts):
            counts, counted = new, time.monotonic()
            on_counts(counts)
        left = [name for name, state in states.items() if not state.over]
        if not left:
            return states
        held = executor.held()
        held_for = held_for + 1 if held and set(left) <= set(held) else 0
        if held_for >= HELD_POLLS:
            notes = executor.notes()
            raise Held({name: notes.get(name, "held") for name in held})
        time.sleep(POLL_S)


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0


def why(folder: SweepFolder, pack: str, notes: Mapping[str, str]) -> str:
    """Tell why a pack broke off: a note, the end of its log, and of what its batch script printed."""
    return "\n".join(filter(None, [notes.get(pack), *_last_lines(folder, pack)]))


def log_files(folder: SweepFolder, pack: str) -> list[Path]:
    """List what a pack and, on a cluster, the batch scripts that were to start it have printed."""
    outputs = [job for _, cls in remote_executors() for job in cls.outputs(folder.path).items()]
    scripts = [path for job, paths in outputs if pack in (job, *shared_job.packs_of(job)) for path in paths]
    return [*scripts, folder.pack_dir(pack) / "log.txt"]


def _last_lines(folder: SweepFolder, pack: str, lines: int = 8) -> Iterator[str]:
    *scripts, log = log_files(folder, pack)
    texts = {file: _text(file) for file in (log, *scripts[-1:])}
    if texts[log] is None:
        yield "the pack never began to write its log"
    elif not texts[log]:
        if closed := refusal(folder.path):
            kept = "finished rounds are kept: fix this and start the sweep again"
            yield f"nothing can be written in {folder.path} ({closed}); {kept}"
        else:
            yield "the log is empty: it was killed"
    for file, text in texts.items():
        if text:
            yield f"the end of {file}:"
            yield "\n".join(text.splitlines()[-lines:])


def _text(file: Path) -> str | None:
    try:
        return file.read_text(errors="replace").strip()
    except OSError:
        return None
