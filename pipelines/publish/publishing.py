"""Records -> W&B, when a sweep ends and between rounds of a pack.

Records are the truth and W&B is a copy, made from them outside measured processes: run folders under
``runs/<sweep>/wandb``, or runs on a server. Publishing again changes nothing unless records changed, and
repairs what W&B lost. Whatever goes wrong in W&B is a warning: it never fails a sweep.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import queue
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, Any

from perfsweep.pipelines.publish.published import Published, PublishedRun, warning
from perfsweep.pipelines.publish.run_folders import published_before
from perfsweep.pipelines.publish.runs import COMPARE, RunKey, SweepRuns
from perfsweep.pipelines.publish.server import address, probe, refusal_in
from perfsweep.pipelines.store.options import MODES, TrackingConfig
from perfsweep.pipelines.store.records import Manifest, SweepFolder
from perfsweep.pipelines.worker_process import Worker, last_line
from perfsweep.workloads.imports import OURS

RUNS_PER_PROCESS = 8
"""Run folders for which another process is worth its start, which costs what four of them cost."""

REQUESTS_OF_A_RUN = 10
REQUESTS_OF_A_PROCESS = 5
REQUESTS_OF_A_COMPARISON = 32
"""What publishing asks of a server at most; rows that take more than five seconds need more."""

REQUESTS_PER_MINUTE = 200
"""What is counted on: W&B publishes no figure for its cloud, and answers 429 above its own."""


def publish(
    folder: SweepFolder,
    packs: Sequence[str] | None = None,
    mode: str | None = None,
    patience_s: float | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> Published:
    """Copy the finished rounds of a sweep, or of some of its packs, to W&B.

    Parameters
    ----------
    mode : instead of the one that the sweep was planned with
    patience_s : likewise, time for one run
    say : hears what will be asked of a server, before it is

    Raises
    ------
    RecordError
        There is no readable manifest.
    ConfigError
        A pack is not of this sweep.
    """
    manifest = folder.read_manifest()
    given = {"mode": mode, "patience_s": patience_s}
    instead = {name: value for name, value in given.items() if value is not None}
    tracking = dataclasses.replace(manifest.sweep.tracking, **instead)
    if tracking.mode == "disabled":
        return Published(mode=tracking.mode)
    if tracking.mode not in MODES:
        unknown = f"tracking.mode={tracking.mode} is unknown"
        refusal = f"{unknown}, nothing was published; choose from: {', '.join(MODES)}"
        return Published(warning=refusal, mode=tracking.mode)
    server, notice = target(tracking)
    done_as = "online" if server else "offline"
    try:
        runs = SweepRuns(folder, manifest)
    except OSError as error:
        why = f"{error.strerror} in {folder.wandb_dir}"
        refusal = f"nothing was published, the records are untouched: {why}; fix this and publish again"
        return Published(warning=refusal, mode=done_as, notice=notice)
    keys = runs.keys(packs)
    done = {} if server else _complete(folder, runs, keys)
    todo = [key for key in keys if key not in done]
    number = sum(key[0] != COMPARE for key in todo)
    count = _processes(tracking, number, online=server is not None)
    if server and number:
        say(forecast(number, count))
    delivered = Crew(folder, server, count, tracking.patience_s).deliver(todo)
    done |= delivered.runs
    for key, why in delivered.failures.items():
        if content := runs.content(key):
            done[key] = content.delivered(None, 0, why)
    found = tuple(run for key in keys if (run := done.get(key)))
    problems = list(dict.fromkeys([*runs.problems, *delivered.problems]))
    remarks = dict.fromkeys(filter(None, (notice, *(run.remark for run in found))))
    return Published(found, warning(found, problems), done_as, "; ".join(remarks) or None)


def _complete(
    folder: SweepFolder, runs: SweepRuns, keys: Sequence[RunKey]
) -> dict[RunKey, PublishedRun | None]:
    """Runs for which no process has to be started: their folders are complete, or their records no use."""
    done: dict[RunKey, PublishedRun | None] = {}
    for key in keys:
        content = runs.content(key)
        if content is None:
            done[key] = None  # a problem that is noted already
        elif before := published_before(folder, content):
            done[key] = before
    return done


def forecast(runs: int, processes: int) -> str:
    """Say how much publishing so many runs asks of a server, and how long its limit makes that."""
    requests = REQUESTS_OF_A_COMPARISON + REQUESTS_OF_A_PROCESS * processes + REQUESTS_OF_A_RUN * runs
    minutes = math.ceil(requests / REQUESTS_PER_MINUTE)
    each = f"{REQUESTS_OF_A_RUN} for each of {runs} runs"
    limit = f"{minutes} minute{'' if minutes == 1 else 's'} at {REQUESTS_PER_MINUTE} a minute"
    return f"about {requests} requests at most, {each}: {limit}"


def target(tracking: TrackingConfig, shell: Mapping[str, str] = os.environ) -> tuple[str | None, str | None]:
    """The server to upload to, or None and one sentence why it has to be run folders."""
    if tracking.mode != "online":
        return None, None
    account = probe(tracking, shell)
    if account.problem:
        return (
            None,
            f"{account.problem}; run folders are written instead, and `perfsweep publish` uploads them later",
        )
    return address(tracking, shell), None


def _processes(tracking: TrackingConfig, runs: int, *, online: bool) -> int:
    """How many processes publish: uploads wait for a server and gain by company, folders only cost CPU."""
    useful = runs if online else min(os.cpu_count() or 1, 1 + runs // RUNS_PER_PROCESS)
    return max(1, min(tracking.uploads, useful))


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
    """Publishes runs of a sweep side by side, in processes that each have a deadline for each run.

    A process that is late is killed: a server that never answers costs one deadline, and no caller hangs.

    Parameters
    ----------
    server : address to upload to; None: offline
    size : processes
    patience_s : time that one run may take, seconds
    """

    def __init__(self, folder: SweepFolder, server: str | None, size: int, patience_s: float) -> None:
        where = ["online", server] if server else ["offline"]
        worker = "perfsweep.pipelines.publish.worker"
        self._command = [sys.executable, "-m", worker, str(folder.path.absolute()), *where]
        self._patience_s, self._wandb_dir = patience_s, folder.wandb_dir
        self._size = size
        self._tasks: queue.SimpleQueue[RunKey] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._delivered = Delivered()
        self._workers: set[Worker] = set()
        self._stopped = False

    def deliver(self, keys: Sequence[RunKey]) -> Delivered:
        """Publish runs, and wait for them; no process is left afterwards."""
        for key in keys:
            self._tasks.put(key)
        threads = [threading.Thread(target=self._serve, daemon=True) for _ in range(self._size)]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                thread.join()
        finally:
            with self._lock:
                self._stopped = True
                for worker in self._workers:
                    worker.kill()
        self._delivered.failures |= dict.fromkeys(self._left(), GIVEN_UP)
        return self._delivered

    def _left(self) -> Iterator[RunKey]:
        """Take the runs that no process has taken yet, one after the other."""
        with contextlib.suppress(queue.Empty):
            while True:
                yield self._tasks.get_nowait()

    def _serve(self) -> None:
        """One thread, one process: runs one after the other until there are none, or the process is lost."""
        worker: Worker | None = None
        with tempfile.TemporaryFile() as log:
            for key in self._left():
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
        paths = [str(OURS), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
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


FIRST_COST_S = 3.0
"""What the first feeding is expected to cost; later ones are expected to cost what the last one did."""

PATIENCE_S = 15.0
"""Time that one run may take between rounds, where `publish` at the end may have more."""


class Feeder:
    """Publishes a pack's finished rounds between its rounds, in the pack's parent, never while a trial runs.

    How often follows from what it costs: all feeding together takes at most `tracking.share` of a pack's
    time. What is not fed here is published when the sweep ends, or by `perfsweep publish`; both read the same
    records. Run folders on disk are written only then: nothing looks at them before, and each is written
    whole. After the first failure it says so once and rests.
    """

    def __init__(
        self,
        folder: SweepFolder,
        manifest: Manifest,
        pack: str,
        send: Callable[..., Published] = publish,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        tracking = manifest.sweep.tracking
        self._folder, self._pack, self._send, self._clock = folder, pack, send, clock
        self._mode, self._share = tracking.mode, tracking.share
        self._patience_s = min(tracking.patience_s, PATIENCE_S)
        self._resting = tracking.mode != "online"
        self._ended, self._cost_s = clock(), FIRST_COST_S

    def between_rounds(self) -> None:
        """Publish what is new, if the share allows it by now."""
        started = self._clock()
        if self._resting or (started - self._ended) * self._share < self._cost_s:
            return
        try:
            done = self._send(self._folder, [self._pack], self._mode, self._patience_s)
        except Exception as error:  # noqa: BLE001 - whatever a copy for looking at does, measuring goes on
            done = Published(warning=f"{type(error).__name__}: {error}")
        self._ended = self._clock()
        self._cost_s = self._ended - started
        for message in filter(None, (done.notice, done.warning)):
            print(f"W&B: {message}", flush=True)
        # A server that could not be reached is not asked again in this pack either.
        self._resting = done.warning is not None or done.mode != self._mode
