"""Worker processes that publish a sweep's runs side by side, each with a deadline for each run.

The processes are killed when they are late: a server that never answers costs one deadline, and no caller
hangs.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing import connection

from perfsweep.pipelines.publish.published import PublishedRun
from perfsweep.pipelines.publish.runs import RunKey
from perfsweep.pipelines.publish.server import refusal_in
from perfsweep.pipelines.store.records import SweepFolder
from perfsweep.workloads.imports import OURS

ASIDE = ".publishing-"
"""What the folders begin with in which publishers keep W&B's own files."""

START_S = 60.0
"""Time for starting a process on a busy machine with a slow file system."""

WAIT_S = 30.0
"""Time to wait for another publisher that has a run, on top of the run's own: what it leaves is complete."""

WAITING = "waiting"
"""Line of a process that waits so."""

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
        self._processes: set[subprocess.Popen[bytes]] = set()
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
            for process in self._processes:
                _kill(process)

    def _serve(self) -> None:
        """One thread, one process: runs one after the other until there are none, or the process is lost."""
        process: subprocess.Popen[bytes] | None = None
        with tempfile.TemporaryFile() as errors:
            while (key := self._tasks.get()) is not None:
                process = process or self._started(errors.fileno())
                answer = _asked(process, key, self._patience_s) if process else ""
                if isinstance(answer, str):
                    why = self._refusal() or answer or _last_line(errors.fileno())
                    with self._lock:
                        self._delivered.failures[key] = why
                    break
                self._note(key, answer)
            if process:
                self._ended(process)

    def _refusal(self) -> str | None:
        """What a server refused to a process that was given up, by what it has left."""
        with contextlib.suppress(OSError):  # another publisher clears that away
            left = self._wandb_dir.glob(f"{ASIDE}*")
            return next(filter(None, map(refusal_in, left)), None)
        return None

    def _started(self, errors: int) -> subprocess.Popen[bytes] | None:
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
            pipe = subprocess.PIPE
            process = subprocess.Popen(
                self._command, env=env, stdin=pipe, stdout=pipe, stderr=errors, start_new_session=True
            )
            self._processes.add(process)
        _line(process, START_S)
        return process

    def _note(self, key: RunKey, answer: dict[str, object]) -> None:
        with self._lock:
            self._delivered.problems += answer["problems"]  # type: ignore[operator]
            if answer["run"]:
                self._delivered.runs[key] = PublishedRun(**answer["run"])  # type: ignore[arg-type]

    def _ended(self, process: subprocess.Popen[bytes]) -> None:
        """Let a process end by itself, which tidies up; kill what does not."""
        assert process.stdin and process.stdout
        with contextlib.suppress(
            OSError, subprocess.TimeoutExpired
        ):  # it is gone already, or is killed below
            process.stdin.close()
            process.wait(timeout=10)
        _kill(process)
        process.stdout.close()
        with self._lock:
            self._processes.discard(process)


def _asked(process: subprocess.Popen[bytes], key: RunKey, seconds: float) -> dict[str, object] | str:
    """The answer to one task, or why there is none: empty where the process ended."""
    assert process.stdin and process.stdout
    try:
        process.stdin.write(json.dumps(key).encode() + b"\n")
        process.stdin.flush()
    except OSError:
        return ""
    line = _line(process, seconds)
    if line is not None and line.strip() == json.dumps(WAITING).encode():
        line = _line(process, WAIT_S + seconds)
    if line is None:
        return f"not done within {seconds:g} s and given up; is the server overloaded?"
    return json.loads(line) if line.endswith(b"\n") else ""


def _line(process: subprocess.Popen[bytes], seconds: float) -> bytes | None:
    """The next line of a process; None, and the process killed, when it does not come in time."""
    assert process.stdout
    if not connection.wait([process.stdout.fileno()], seconds):
        _kill(process)
        return None
    return process.stdout.readline()


def _kill(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    process.wait()


def _last_line(errors: int) -> str:
    size = os.fstat(errors).st_size
    lines = os.pread(errors, 4096, max(0, size - 4096)).decode(errors="replace").strip().splitlines()
    return f"the publishing process ended: {lines[-1] if lines else 'it was killed'}"
