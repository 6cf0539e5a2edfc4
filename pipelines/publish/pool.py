"""Worker processes that publish a sweep's runs side by side, each with a deadline for each run.

The processes are killed when they are late: a server that never answers costs one deadline, and no caller
hangs.
"""

from __future__ import annotations

import contextlib
import os
import queue
import sys
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import IO, Any

from perfsweep.pipelines.publish.published import PublishedRun
from perfsweep.pipelines.publish.runs import RunKey
from perfsweep.pipelines.publish.server import refusal_in
from perfsweep.pipelines.store.records import SweepFolder
from perfsweep.pipelines.worker_process import Worker, last_line
from perfsweep.workloads.imports import OURS

ASIDE = ".publishing-"
"""What the folders begin with in which publishers keep W&B's own files."""

START_S = 60.0
"""Time for starting a process on a busy machine with a slow file system."""

WAIT_S = 30.0
"""Time to wait for another publisher that has a run, on top of the run's own: what it leaves is complete."""

END_S = 10.0
"""Time for a process to end by itself, which tidies up."""

READY, WAITING = "ready", "waiting"
"""What an answer holds alone: that all is imported, so that deadlines count from here; that it waits so."""

GIVEN_UP = "given up after another run"


@dataclass
class Delivered:
    """What the crew brought back: runs, why others are missing, and records that could not be read."""

    runs: dict[RunKey, PublishedRun] = field(default_factory=dict)
    failures: dict[RunKey, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


class Crew:
    """Publishes runs as they are handed over; `finish` waits for them.

    Parameters
    ----------
    server : address to upload to; None: offline
    size : processes
    patience_s : time that one run may take, seconds
    """

    def __init__(self, folder: SweepFolder, server: str | None, size: int, patience_s: float) -> None:
        self._command = [
            sys.executable,
            "-m",
            "perfsweep.pipelines.publish.worker",
            str(folder.path.absolute()),
        ]
        self._command += ["online", server] if server else ["offline"]
        self._patience_s, self._wandb_dir = patience_s, folder.wandb_dir
        self._tasks: queue.Queue[RunKey | None] = queue.Queue()
        self._lock = threading.Lock()
        self._delivered = Delivered()
        self._workers: set[Worker] = set()
        self._stopped = False
        self._threads = [threading.Thread(target=self._serve, daemon=True) for _ in range(size)]
        for thread in self._threads:
            thread.start()

    def hand_over(self, keys: Sequence[RunKey]) -> None:
        """Have runs published as soon as a process is free."""
        for key in keys:
            self._tasks.put(key)

    def finish(self) -> Delivered:
        """Wait for everything that was handed over; no process is left afterwards."""
        for _ in self._threads:
            self._tasks.put(None)
        try:
            for thread in self._threads:
                thread.join()
        finally:
            self.stop()
        while not self._tasks.empty():
            if key := self._tasks.get():
                self._delivered.failures[key] = GIVEN_UP
        return self._delivered

    def stop(self) -> None:
        """Kill what still runs."""
        with self._lock:
            self._stopped = True
            for worker in self._workers:
                worker.kill()

    def _serve(self) -> None:
        """One thread, one process: runs one after the other until there are none, or the process is lost."""
        worker: Worker | None = None
        with tempfile.TemporaryFile() as log:
            while (key := self._tasks.get()) is not None:
                worker = worker or self._started(log)
                answer = _asked(worker, key, self._patience_s) if worker else ""
                if isinstance(answer, str):
                    why = self._refusal() or answer or _ending(log)
                    with self._lock:
                        self._delivered.failures[key] = why
                    break
                self._note(key, answer)
            if worker:
                worker.end(END_S)
                with self._lock:
                    self._workers.discard(worker)

    def _refusal(self) -> str | None:
        """What a server refused to a process that was given up, by what it has left."""
        with contextlib.suppress(OSError):  # another publisher clears that away
            left = self._wandb_dir.glob(f"{ASIDE}*")
            return next(filter(None, map(refusal_in, left)), None)
        return None

    def _started(self, log: IO[bytes]) -> Worker | None:
        own = str(OURS)
        paths = [own, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
        env = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths)),
            "PYTHONSAFEPATH": "1",
            "OMP_NUM_THREADS": "1",
        }
        with self._lock:
            if self._stopped:
                return None
            worker = Worker(self._command, env, log)
            self._workers.add(worker)
        if worker.answer(START_S) is None:
            worker.kill()
        return worker

    def _note(self, key: RunKey, answer: dict[str, Any]) -> None:
        with self._lock:
            self._delivered.problems += answer["problems"]
            if answer["run"]:
                self._delivered.runs[key] = PublishedRun(**answer["run"])


def _asked(worker: Worker, key: RunKey, seconds: float) -> dict[str, Any] | str:
    """The answer to one task, or why there is none: empty where the process ended."""
    answer = worker.ask(key, seconds)
    if answer == {WAITING: True}:
        answer = worker.answer(WAIT_S + seconds)
    if answer is not None or worker.gone:
        return answer or ""
    worker.kill()
    return f"not done within {seconds:g} s and given up; is the server overloaded?"


def _ending(log: IO[bytes]) -> str:
    return f"the publishing process ended: {last_line(log) or 'it was killed'}"
