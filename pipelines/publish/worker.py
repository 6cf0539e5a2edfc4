"""The process that talks to W&B for a sweep: one run after the other, told on stdin and answered on stdout.

Run as ``python -m perfsweep.pipelines.publish.worker <sweep folder> <offline|online> [<address>]``. Whatever
W&B does in it, hang and die included, happens here and not in the process that measures or prints.

Publishers are kept apart by a lock for each run, and by a folder aside for each publisher that later ones
clear away. Locks are the kernel's: they end with the process that holds them, however it ends.

A run on a server is made to hold the records: by nothing, an append, or a new run for a damaged one. A
complete run says in its summary what it consists of, so that the server alone tells what is missing: no state
of ours can disagree with it. New rows are appended after the last row has been verified; whatever else is
found there is replaced by a run of the next generation and then deleted, because W&B appends rows that are
sent again.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any

from perfsweep.pipelines.config.tracking import guarded, own_environment
from perfsweep.pipelines.locks import holding, own_folder
from perfsweep.pipelines.publish.content import RunContent, generation_of
from perfsweep.pipelines.publish.published import PublishedRun
from perfsweep.pipelines.publish.publishing import ASIDE, READY, WAIT_S, WAITING
from perfsweep.pipelines.publish.run_folders import (
    artifact_name,
    mark_uploaded,
    published_before,
    write_offline,
    write_run,
)
from perfsweep.pipelines.publish.runs import RunKey, SweepRuns
from perfsweep.pipelines.publish.server import key_may_go_to, refusal_in
from perfsweep.pipelines.store.files import write_atomically
from perfsweep.pipelines.store.records import SweepFolder
from perfsweep.pipelines.trial.parent import end_with_parent
from perfsweep.pipelines.worker_process import answers

BUSY = "another publisher is writing it"


class Publisher:
    """Publishes runs of a sweep, offline or to a server; `waits` is called before it waits for another."""

    def __init__(self, runs: SweepRuns, staging: Path, server: str | None) -> None:
        self._runs, self._staging, self._address = runs, staging, server
        self._server: Server | None = None
        self._sent: dict[str, str] = {}
        self.waits: Callable[[], None] = lambda: None

    def publish(self, key: RunKey) -> PublishedRun | None:
        """Publish one run; whatever goes wrong is its note. None where its records cannot be understood."""
        content = self._runs.content(key)
        if content is None:
            return None
        problems: list[str] = []
        done = None
        with guarded(problems):
            done = self._alone(content, 0.0)
            if done is None:
                self.waits()
                done = self._alone(content, WAIT_S) or content.delivered(None, 0, BUSY)
        return done or content.delivered(None, 0, problems[0] if problems else "not published")

    def _alone(self, content: RunContent, patience_s: float) -> PublishedRun | None:
        """Deliver a run while no other process does; None where another publisher keeps it for longer."""
        with run_lock(self._runs.folder, content.run_id, patience_s) as ours:
            return self._deliver(content) if ours else None

    def _deliver(self, content: RunContent) -> PublishedRun:
        if self._address is None:
            return published_before(self._runs.folder, content) or write_offline(
                self._runs.folder, content, self._staging
            )
        if self._server is None:
            self._sent = _uploads(self._runs.folder)  # before it is asked
            self._server = Server()
        lock = _lock_file(self._runs.folder, content.run_id)
        # What another publisher has sent since the server was asked must not be sent once more. Each upload
        # leaves a word of its own: times of day of two machines cannot be compared.
        fresh = lock.read_text(errors="replace") != self._sent.get(lock.name, "")
        try:
            return upload(self._runs.folder, content, self._server, self._staging, fresh=fresh)
        finally:
            self._sent[lock.name] = uuid.uuid4().hex
            lock.write_text(self._sent[lock.name])


@contextmanager
def publisher(runs: SweepRuns, server: str | None, *, alone: bool = False) -> Iterator[Publisher]:
    """A publisher with W&B's own files aside, which go when it is done.

    One that has its process `alone` has all temporary files there, since W&B leaves its own where it is
    killed. Sockets stay in TMPDIR: the way to a sweep may be too long for one.
    """
    sent = server is not None and key_may_go_to(server, os.environ)
    with own_folder(runs.folder.wandb_dir, ASIDE) as aside, own_environment(aside, server, credentials=sent):
        if alone:
            tempfile.tempdir = str(aside)
        try:
            yield Publisher(runs, aside, server)
        finally:
            if "wandb" in sys.modules:
                with guarded([]):
                    sys.modules["wandb"].teardown()


@contextmanager
def run_lock(folder: SweepFolder, run_id: str, patience_s: float = 0.0) -> Iterator[bool]:
    """Hold a run's lock, so that two publishers never write it at once; False where another keeps it."""
    lock, deadline = _lock_file(folder, run_id), time.monotonic() + patience_s
    lock.parent.mkdir(parents=True, exist_ok=True)
    while True:
        with holding(lock) as other:
            if not other or time.monotonic() >= deadline:
                yield not other
                return
        time.sleep(0.1)


def _lock_file(folder: SweepFolder, run_id: str) -> Path:
    return folder.wandb_dir / ".locks" / run_id


def _uploads(folder: SweepFolder) -> dict[str, str]:
    """What the last upload of each run has left in its lock."""
    locks = _lock_file(folder, "").iterdir()
    return {lock.name: lock.read_text(errors="replace") for lock in locks if lock.is_file()}


SETTLE_S = 10.0
"""Time after which rows that were sent must be visible on the server."""

FIRST_PAUSE_S = 0.2
"""Between the first two questions whether they are."""

TRIES = 2
"""A run that did not arrive whole is replaced once in the same call."""


@dataclass(frozen=True)
class OnServer:
    """A run as the server knows it: its rows, and what it says of itself."""

    name: str
    generation: int
    lines: int
    digest: str
    segments: tuple[str, ...]
    handle: Any = None


class Step(Enum):
    """What has to be done for a run."""

    NOTHING = "nothing"
    APPEND = "append"
    NEW = "new"


@dataclass(frozen=True)
class Decision:
    """The step, the generation it concerns, the first segment to send, and runs that must go afterwards."""

    step: Step
    generation: int
    first: int
    stale: tuple[OnServer, ...]


def decide(content: RunContent, found: Sequence[OnServer], used: int) -> Decision:
    """What brings the server to what the records hold.

    Parameters
    ----------
    found : generations of the run that are on the server
    used : the latest generation that was ever begun from here; a deleted one cannot be had again
    """
    newest_first = sorted(found, key=lambda run: run.generation, reverse=True)
    for run in newest_first:
        if run.digest == content.digest() and run.lines == content.rows:
            return Decision(Step.NOTHING, run.generation, len(content.segments), _others(found, run))
    for run in newest_first[:1]:
        sent = len(run.segments)
        whole = sent and run.lines == sum(segment.count for segment in content.segments[:sent])
        if whole and list(run.segments) == content.digests[:sent]:
            return Decision(Step.APPEND, run.generation, sent, _others(found, run))
    return Decision(Step.NEW, max([used, *(run.generation for run in found)]) + 1, 0, tuple(found))


def _others(found: Sequence[OnServer], kept: OnServer) -> tuple[OnServer, ...]:
    return tuple(run for run in found if run is not kept)


class Server:
    """The public API, as far as uploads are checked with it."""

    def __init__(self) -> None:
        import wandb

        self._api = wandb.Api()
        self._listed: dict[tuple[str, str, str], list[Any]] = {}

    def generations(self, content: RunContent, *, fresh: bool = False) -> list[OnServer]:
        """All generations of a run; one listing serves all runs of a sweep."""
        key = (content.entity or "", content.project, content.group)
        if fresh or key not in self._listed:
            self._listed[key] = self._list(*key)
        found = [(generation_of(content.run_id, run.id), run) for run in self._listed[key]]
        return [_described(run, generation) for generation, run in found if generation is not None]

    def _list(self, entity: str, project: str, group: str) -> list[Any]:
        self._api.flush()  # otherwise a listing is answered from memory for ever
        try:
            return list(
                self._api.runs(
                    f"{entity}/{project}" if entity else project, filters={"group": group}, lazy=False
                )
            )
        except ValueError as error:
            if "Could not find project" in str(error):
                return []  # the first run creates it
            raise


def _described(run: Any, generation: int) -> OnServer:
    said = run.summary
    try:
        segments = tuple(json.loads(said.get("published/segments") or "[]"))
    except (TypeError, ValueError):
        segments = ()
    return OnServer(
        run.id, generation, int(run.historyLineCount or 0), said.get("published/digest") or "", segments, run
    )


def upload(
    folder: SweepFolder, content: RunContent, server: Server, staging: Path, *, fresh: bool = False
) -> PublishedRun:
    """Bring one run on the server to what the records hold, and check it there.

    `fresh` asks the server again what it has.
    """
    found = server.generations(content, fresh=fresh)
    before = max((run.lines for run in found), default=0)
    url: str | None = None
    remark, refusal = "", None
    notes: list[str] = []
    for _ in range(TRIES):
        if not notes:
            found = _with_files(content, found)
        decision = decide(content, found, _used(folder, content))
        if decision.step is not Step.NOTHING:
            _note_used(folder, content, decision.generation)
            name = content.named(decision.generation)
            try:
                rest = content.segments[decision.first :]
                path, url, remark = write_run(
                    staging, content, name, mode="online", segments=rest, resume=decision.first > 0
                )
            except Exception as error:
                if "previously created and deleted" in str(error):
                    continue  # a user deleted the run on the server; the next generation is free
                raise
            notes.append(_words(decision, found))
            found, refusal = _settled(server, content, name), refusal_in(path)
        arrived = next((run for run in found if run.generation == decision.generation), None)
        url = url or (arrived.handle.url if arrived else None)
        if arrived is not None and (not notes or _is_whole(content, arrived)):
            refused = [name for run in decision.stale if (name := _deleted(run))]
            mark_uploaded(folder, content.run_id)
            note = ", ".join(notes) or "already complete"
            note += f"; delete {', '.join(refused)} by hand, they hold parts of the same" if refused else ""
            return content.delivered(url, content.rows, note, before, remark)
        if refusal and "(429)" in refusal:
            break  # sending more is what is not wanted now
        # Whatever is there is not what was sent: without its own words it counts as damaged and is replaced.
        found = [replace(run, digest="", segments=()) for run in found]
    rows = max((run.lines for run in found), default=0)
    short = refusal or f"W&B holds {rows} of {content.rows} rows after {TRIES} tries"
    return content.delivered(url, min(rows, content.rows - 1), short, before, remark)


def _words(decision: Decision, found: Sequence[OnServer]) -> str:
    if decision.step is Step.APPEND:
        return "continued"
    return "replaced" if found else "uploaded"


def _settled(server: Server, content: RunContent, name: str) -> list[OnServer]:
    """The generations on the server as soon as one holds all rows, or after a while as they are."""
    deadline, pause_s = time.monotonic() + SETTLE_S, FIRST_PAUSE_S
    while True:
        found = server.generations(content, fresh=True)
        whole = any(
            run.name == name and run.lines >= content.rows and run.digest == content.digest() for run in found
        )
        if whole or time.monotonic() > deadline:
            return found
        time.sleep(pause_s)
        pause_s *= 2  # each question is a request


def _is_whole(content: RunContent, run: OnServer) -> bool:
    """Whether a run just sent is whole; equal numbers of lost and doubled rows show by their indices."""
    if run.lines != content.rows or run.digest != content.digest():
        return False
    rows = (row for segment in content.segments for row in segment.rows())
    expected = [row["iter/index"] for row in rows if "iter/index" in row]
    if expected:
        there = run.handle.scan_history(keys=["iter/index"], use_cache=False)
        if [row["iter/index"] for row in there] != expected:
            return False
    return _has_files(content, run)


def _with_files(content: RunContent, found: list[OnServer]) -> list[OnServer]:
    """Count runs as damaged whose artifacts did not arrive, as after an interrupted ``wandb sync``."""
    return [
        replace(run, digest="", segments=())
        if run.digest == content.digest() and not _has_files(content, run)
        else run
        for run in found
    ]


def _has_files(content: RunContent, run: OnServer) -> bool:
    """Whether the run's artifacts are committed: its files, and what W&B makes of each table."""
    media = not all(segment.numbers for segment in content.segments)
    if not content.files and not media:
        return True
    there = list(run.handle.logged_artifacts())
    tables = [one for one in there if one.name.startswith(f"run-{run.name}-")]
    series = not content.files or any(_is_series(content, run.name, one) for one in there)
    return series and (bool(tables) or not media)


def _is_series(content: RunContent, name: str, artifact: Any) -> bool:
    return (
        artifact.name.partition(":")[0] == artifact_name(content, name)
        and artifact.metadata.get("segments") == content.digests
    )


def _deleted(run: OnServer) -> str | None:
    """Delete a run of ours; its name when the server refuses."""
    from wandb.errors import CommError

    try:
        run.handle.delete(delete_artifacts=bool(list(run.handle.logged_artifacts())))
    except (CommError, ValueError):
        return run.name
    return None


def _generation_file(folder: SweepFolder, content: RunContent) -> Path:
    return folder.wandb_dir / f"{content.run_id}.generation"


def _used(folder: SweepFolder, content: RunContent) -> int:
    try:
        return int(_generation_file(folder, content).read_text())
    except (OSError, ValueError):
        return 0


def _note_used(folder: SweepFolder, content: RunContent, generation: int) -> None:
    write_atomically(_generation_file(folder, content), str(generation).encode(), sync=False)


def main(arguments: list[str]) -> int:
    """Serve until stdin ends."""
    stream = answers()

    def answer(values: dict[str, Any]) -> None:
        print(json.dumps(values), file=stream, flush=True)

    folder = SweepFolder(arguments[0])
    runs = SweepRuns(folder, folder.read_manifest())
    with publisher(runs, arguments[2] if arguments[1] == "online" else None, alone=True) as ours:
        ours.waits = lambda: answer({WAITING: True})
        import wandb  # noqa: F401 - a second that does not belong to the first run

        answer({READY: True})
        for line in sys.stdin:
            known = len(runs.problems)
            done = ours.publish(tuple(json.loads(line)))
            answer({"run": dataclasses.asdict(done) if done else None, "problems": runs.problems[known:]})
    return 0


if __name__ == "__main__":
    end_with_parent()
    sys.exit(main(sys.argv[1:]))
