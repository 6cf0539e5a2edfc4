"""The process that talks to W&B for a sweep: one run after the other, told on stdin and answered on stdout.

Run as ``python -m pipelines.publish.worker <sweep folder> <offline|online> [<address>]``. Whatever W&B does
in it, hang and die included, happens here and not in the process that measures or prints.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pipelines.config.wandb_settings import guarded, own_environment
from pipelines.publish.content import RunContent
from pipelines.publish.locks import held, staging
from pipelines.publish.offline import published_before, write_offline
from pipelines.publish.published import PublishedRun
from pipelines.publish.runs import RunKey, SweepRuns
from pipelines.publish.upload import Server, upload
from pipelines.store.records import SweepFolder
from pipelines.trial.parent import die_with_parent

READY = "ready"
"""First line of an answer: everything is imported, and deadlines can be counted from here."""

BUSY = "another publisher is writing it"


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
        with guarded(problems), held(self._runs.folder, content.run_id) as ours:
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
