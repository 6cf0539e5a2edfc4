"""The process that talks to W&B for a sweep: one run after the other, told on stdin and answered on stdout.

Run as ``python -m pipelines.publish.worker <sweep folder> <offline|online> [<address>]``. Whatever W&B does
in it, hang and die included, happens here and not in the process that measures or prints.

Publishers are kept apart by a lock for each run, and by a folder aside for each publisher that later ones
clear away. Locks are the kernel's: they end with the process that holds them, however it ends.
"""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pipelines.config.wandb_settings import guarded, own_environment
from pipelines.publish.content import RunContent
from pipelines.publish.offline import published_before, write_offline
from pipelines.publish.published import PublishedRun
from pipelines.publish.runs import RunKey, SweepRuns
from pipelines.publish.upload import Server, upload
from pipelines.store.records import SweepFolder
from pipelines.trial.parent import die_with_parent

READY = "ready"
"""First line of an answer: everything is imported, and deadlines can be counted from here."""

BUSY = "another publisher is writing it"

_ASIDE = ".publishing-"
_ALIVE = "alive"


class Publisher:
    """Publishes runs of a sweep, offline or to a server."""

    def __init__(self, runs: SweepRuns, staging: Path, server: str | None) -> None:
        self._runs, self._staging, self._address = runs, staging, server
        self._server: Server | None = None

    def publish(self, key: RunKey) -> PublishedRun | None:
        """Publish one run; whatever goes wrong is its note. None where its records cannot be understood."""
        content = self._runs.content(key)
        if content is None:
            return None
        problems: list[str] = []
        done = None
        with guarded(problems), run_lock(self._runs.folder, content.run_id) as ours:
            done = self._deliver(content) if ours else missing(content, BUSY)
        return done or missing(content, problems[0] if problems else "not published")

    def _deliver(self, content: RunContent) -> PublishedRun:
        if self._address is None:
            return published_before(self._runs.folder, content) or write_offline(
                self._runs.folder, content, self._staging
            )
        if self._server is None:
            self._server = Server()
        return upload(self._runs.folder, content, self._server, self._staging)


def missing(content: RunContent, note: str) -> PublishedRun:
    """A run that was not published."""
    return PublishedRun(content.arm, content.label, content.pack, content.run_id, None, content.rows, 0, note)


@contextmanager
def publisher(runs: SweepRuns, server: str | None) -> Iterator[Publisher]:
    """A publisher with W&B's own files aside, which go when it is done."""
    with staging(runs.folder.wandb_dir) as aside, own_environment(aside, server):
        try:
            yield Publisher(runs, aside, server)
        finally:
            if "wandb" in sys.modules:
                with guarded([]):
                    sys.modules["wandb"].teardown()


@contextmanager
def run_lock(folder: SweepFolder, run_id: str) -> Iterator[bool]:
    """Hold a run's lock, so that two publishers never write it at once; False where another has it."""
    place = folder.wandb_dir / ".locks"
    place.mkdir(parents=True, exist_ok=True)
    with _locked(place / run_id) as ours:
        yield ours


@contextmanager
def staging(place: Path) -> Iterator[Path]:
    """A folder below `place` for a publisher's own files; folders of publishers that were killed go first."""
    place.mkdir(parents=True, exist_ok=True)
    for left in place.glob(f"{_ASIDE}*"):
        _clear(left)
    with tempfile.TemporaryDirectory(prefix=_ASIDE, dir=place, ignore_cleanup_errors=True) as aside:
        taken = Path(aside) / f"{_ALIVE}.tmp"
        with _locked(taken):
            taken.replace(taken.with_suffix(""))  # nobody sees the name before the lock is held
            yield Path(aside)


def _clear(left: Path) -> None:
    if (left / _ALIVE).exists():
        with _locked(left / _ALIVE) as dead:
            if dead:
                shutil.rmtree(left, ignore_errors=True)


@contextmanager
def _locked(file: Path) -> Iterator[bool]:
    with file.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True


def main(arguments: list[str]) -> int:
    """Serve until stdin ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what anybody prints must not be taken for an answer
    folder = SweepFolder(arguments[0])
    runs = SweepRuns(folder, folder.read_manifest())
    with publisher(runs, arguments[2] if arguments[1] == "online" else None) as ours:
        import wandb  # noqa: F401 - a second that does not belong to the first run

        print(json.dumps(READY), file=answers, flush=True)
        for line in sys.stdin:
            known = len(runs.problems)
            done = ours.publish(tuple(json.loads(line)))
            answer = {"run": dataclasses.asdict(done) if done else None, "problems": runs.problems[known:]}
            print(json.dumps(answer), file=answers, flush=True)
    return 0


if __name__ == "__main__":
    die_with_parent()
    sys.exit(main(sys.argv[1:]))
