"""Start trial processes, wait for them without spinning, end them at deadlines, and say how they ended.

Signals that ask a pack to end are heard once, wherever they find it, and never lost.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing import connection
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType
from typing import Protocol

from perfsweep.pipelines.store.records import Failure, Outcome
from perfsweep.pipelines.store.trial_schema import UNWRITTEN
from perfsweep.pipelines.trial.machine.gpus import BY_BUS
from perfsweep.pipelines.trial.parent import Reply, descendants, kill_all
from perfsweep.workloads import native
from perfsweep.workloads.imports import OURS
from perfsweep.workloads.user_environment import INTERPRETER, changed

_OOM_COUNTER = Path("/sys/fs/cgroup/memory.events")


@dataclass(frozen=True)
class Termination:
    """How a process group ended that left no record."""

    outcome: Outcome
    failure: Failure


class ServerLost(RuntimeError):
    """The server that forks trials has ended: it was killed, or memory ran out."""


class Child(ABC):
    """One running process of a trial, or those of another node.

    Attributes
    ----------
    handle : becomes readable when the process ends
    pipe : to a process that stays, None to one that runs by itself
    silent_at : when it counts as lost unless `handle` becomes readable before, by `time.monotonic`
    """

    pid: int
    handle: int
    pipe: Connection | None = None
    silent_at = math.inf

    @abstractmethod
    def code(self) -> int | None:
        """Exit status, negative for a signal, None while it runs."""

    def termination(self, oom_kills_before: int) -> Termination:
        """How it ended, where its status is not 0 or it counts as lost."""
        return termination_of(self.code(), oom_kills_so_far() > oom_kills_before)

    def kill(self) -> None:
        """Kill what is left of its process group, and what has left that: workers, compilers, daemons."""
        left = descendants([self.pid]) if self.code() is None else []
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            return  # everything of the group has ended
        kill_all(left)
        if self.code() is None:
            connection.wait([self.handle], timeout=10)
            self.code()


class Starter(Protocol):
    """Starts the processes of a trial: by exec, or forked from a server."""

    def start(self, spec_file: Path, world: int, env: Mapping[str, str], stay: bool = False) -> list[Child]:
        """Start all ranks."""
        ...


Elsewhere = Callable[[Path, int, Mapping[str, str]], tuple[int, list[Child]]]
"""Starts the ranks of a trial that belong to other nodes; how many are left for this one, and those. See
`perfsweep.pipelines.execution.nodes`."""


def fix_imports(import_paths: Sequence[str]) -> None:
    """Have every process started from here import the sources that run here, and number GPUs as NVML does.

    Otherwise another version of perfsweep, as one that is installed, could win over a snapshot.
    `import_paths` are folders that a workload from outside is imported from.
    """
    own = str(OURS)
    before = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    path = os.pathsep.join(dict.fromkeys(filter(None, [own, *import_paths, *before])))
    os.environ.update(changed(os.environ, {"PYTHONPATH": path, "PYTHONSAFEPATH": "1", **BY_BUS}))


def interpreter_of(variables: Mapping[str, str]) -> str:
    """The interpreter of a trial: this one, unless its variables name that of another environment."""
    return variables.get(INTERPRETER, sys.executable)


class Exec:
    """Starts trials as fresh interpreters, one for each rank; `env` are variables of all of them."""

    def __init__(
        self,
        module: str = "perfsweep.pipelines.trial.process",
        env: Mapping[str, str] | None = None,
        elsewhere: Elsewhere | None = None,
    ) -> None:
        self._module = module
        self._env = dict(env or {})
        self._elsewhere = elsewhere

    def start(self, spec_file: Path, world: int, env: Mapping[str, str], stay: bool = False) -> list[Child]:
        """Start all ranks of a trial with its levels' variables; with `stay` each waits at a pipe."""
        scratch = str(spec_file.parent / "scratch")
        values = {
            name: native.filled(name, text.replace("{scratch_dir}", scratch)) for name, text in env.items()
        }
        variables = {**self._env, **values}
        log = spec_file.parent / "log.txt"
        if self._elsewhere is None or world == 1:
            return [self.rank(spec_file, rank, variables, log, stay) for rank in range(world)]
        here, children = self._elsewhere(spec_file, world, variables)
        return [*(self.rank(spec_file, rank, variables, log) for rank in range(here)), *children]

    def rank(
        self, spec_file: Path, rank: int, variables: Mapping[str, str], log_file: Path, stay: bool = False
    ) -> Child:
        """Start one rank of a trial on this node."""
        ours, theirs = multiprocessing.Pipe() if stay else (None, None)
        inherited = [theirs.fileno()] if theirs else []
        words = [self._module, str(spec_file), str(rank), *map(str, inherited)]
        with log_file.open("ab") as log:
            process = subprocess.Popen(
                [interpreter_of(variables), "-m", *words],
                env={**os.environ, **changed(os.environ, variables)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                pass_fds=inherited,
            )
        if theirs is not None:
            theirs.close()
        return _Executed(process, ours)


def wait(children: Sequence[Child], timeout_s: float) -> Termination | None:
    """Sleep until all processes have ended or the time has passed; how they ended, if not all with status 0.

    Whatever happens, an exception out of a signal handler included, no process outlives this call.
    """
    oom_kills, deadline = oom_kills_so_far(), time.monotonic() + timeout_s
    try:
        waiting = {child.handle: child for child in children}
        while waiting:
            if (now := time.monotonic()) >= deadline:
                return _late(timeout_s)
            silent = min(waiting.values(), key=lambda child: child.silent_at)
            ready = connection.wait(list(waiting), timeout=max(0.0, min(deadline, silent.silent_at) - now))
            if not ready and time.monotonic() >= silent.silent_at:
                return silent.termination(oom_kills)
            for handle in ready:
                child = waiting[handle]  # type: ignore[index]
                if (code := child.code()) is None:
                    continue  # a sign of life from another node
                del waiting[handle]  # type: ignore[arg-type]
                if code != 0:  # the other ranks would wait for this one for ever
                    return child.termination(oom_kills)
        return None
    finally:
        for child in children:
            child.kill()


def receive(children: Sequence[Child], timeout_s: float) -> list[Reply] | Termination:
    """Sleep until several processes that stay have replied; their replies, or how one of them ended.

    They are left running, except after an ending.
    """
    oom_kills = oom_kills_so_far()
    deadline = time.monotonic() + timeout_s
    replies: dict[int, Reply] = {}
    while len(replies) < len(children):
        waiting = {
            child.pipe: child for child in children if child.pid not in replies and child.pipe is not None
        }
        ready = connection.wait(list(waiting), timeout=max(0.0, deadline - time.monotonic()))
        for pipe in ready:
            child = waiting[pipe]  # type: ignore[index]
            try:
                replies[child.pid] = pipe.recv()  # type: ignore[union-attr]
            except (EOFError, OSError):
                connection.wait([child.handle], timeout=10)
                child.code()
                end(children)
                return child.termination(oom_kills)
        if not ready:
            end(children)
            return _late(timeout_s)
    return [replies[child.pid] for child in children]


def _late(timeout_s: float) -> Termination:
    return Termination(
        Outcome.TIMEOUT, Failure(type="Timeout", message=f"did not end within {timeout_s:g} s")
    )


def end(children: Sequence[Child]) -> None:
    """End processes that stay, and all they started."""
    for child in children:
        if child.pipe is not None:
            child.pipe.close()
        child.kill()


NO_RECORD = "NoRecord"
"""Type of failure of a process that ended by itself and wrote nothing."""

NOT_WRITTEN = "NotWritten"
"""Type of failure of a process whose disk did not take its record."""


def termination_of(code: int | None, out_of_memory: bool) -> Termination:
    """How a process ended, from its exit status, and from whether the kernel has killed any for memory."""
    if code == -signal.SIGKILL and out_of_memory:
        return Termination(
            Outcome.OOM,
            Failure(type="Killed", message="the kernel killed the process because memory ran out"),
        )
    if code == UNWRITTEN:
        message = "the process could not write what came of it"
        return Termination(Outcome.FAILED, Failure(type=NOT_WRITTEN, message=message))
    if code is not None and code < 0:
        name = signal.Signals(-code).name
        return Termination(Outcome.FAILED, Failure(type=name, message=f"the process was ended by {name}"))
    return Termination(Outcome.FAILED, without_exception(code))


def without_exception(code: int | None) -> Failure:
    """Why there is no record of a process that was not killed and raised nothing."""
    what = "something called os._exit or sys.exit, or a library ended it"
    return Failure(
        type=NO_RECORD, message=f"the process ended with status {code} without an exception: {what}"
    )


def oom_kills_so_far() -> int:
    """How many processes the memory limit of this cgroup has killed so far."""
    try:
        fields = dict(line.split() for line in _OOM_COUNTER.read_text().splitlines())
    except (OSError, ValueError):
        return 0
    return int(fields.get("oom_kill", 0))


class _Executed(Child):
    def __init__(self, process: subprocess.Popen[bytes], pipe: Connection | None = None) -> None:
        self._process = process
        self.pipe = pipe
        self.pid = process.pid
        self.handle = os.pidfd_open(process.pid)

    def code(self) -> int | None:
        return self._process.poll()

    def __del__(self) -> None:
        os.close(self.handle)


SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR2)

_heard: list[str] = []


class Interrupted(BaseException):
    """A signal asked the pack to end; like KeyboardInterrupt it passes every handler of ordinary mistakes."""


def listen_for_signals() -> None:
    """Raise Interrupted on the first of these signals, out of whatever the main thread does then."""
    _heard.clear()
    for number in SIGNALS:
        signal.signal(number, _interrupt)


def stop_if_interrupted() -> None:
    """Raise once more what a finalizer, out of which nothing can be raised, has kept to itself."""
    if _heard:
        raise Interrupted(_heard[0])


def signal_heard() -> str:
    """Name the signal that has asked the pack to end; empty where none has."""
    return _heard[0] if _heard else ""


def _interrupt(number: int, frame: FrameType | None) -> None:
    for again in SIGNALS:  # Slurm, srun and our own parent may all pass the same signal on
        signal.signal(again, signal.SIG_IGN)
    _heard.append(signal.Signals(number).name)
    raise Interrupted(_heard[0])
