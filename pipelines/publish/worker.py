"""The process that talks to W&B for a sweep: one run after the other, told on stdin and answered on stdout.

Run as ``python -m perfsweep.pipelines.publish.worker <sweep folder> <offline|online> [<address>]``. Whatever
W&B does in it, hang and die included, happens here and not in the process that measures or prints.

Publishers are kept apart by a lock for each run, and by a folder aside for each publisher that later ones
clear away. Locks are the kernel's: they end with the process that holds them, however it ends.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from perfsweep.pipelines.config.tracking import guarded, own_environment
from perfsweep.pipelines.locks import holding, own_folder
from perfsweep.pipelines.publish.content import RunContent
from perfsweep.pipelines.publish.published import PublishedRun
from perfsweep.pipelines.publish.publishing import ASIDE, READY, WAIT_S, WAITING
from perfsweep.pipelines.publish.run_folders import published_before, write_offline
from perfsweep.pipelines.publish.runs import RunKey, SweepRuns
from perfsweep.pipelines.publish.server import key_may_go_to
from perfsweep.pipelines.publish.upload import Server, upload
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
