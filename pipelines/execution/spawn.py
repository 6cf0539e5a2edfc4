"""Start trial processes, wait for them without spinning, end them at deadlines, and say how they ended."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import connection, forkserver
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import ModuleType
from typing import Protocol

from pipelines.store.records import Failure, Outcome
from pipelines.trial.parent import Reply, forked

_OOM_COUNTER = Path("/sys/fs/cgroup/memory.events")


@dataclass(frozen=True)
class Termination:
    """How a process group ended that left no record."""

    outcome: Outcome
    failure: Failure


class Child(Protocol):
    """One running process of a trial."""

    pid: int
    pipe: Connection | None
    """To a process that stays, None to one that runs by itself."""

    @property
    def handle(self) -> int:
        """Becomes readable when the process ends."""
        ...

    def code(self) -> int | None:
        """Exit status, negative for a signal, None while it runs."""
        ...


def fix_imports(import_paths: Sequence[str]) -> None:
    """Have every process started from here import the sources that run here.

    Otherwise a folder called `pipelines` or `workloads` in the current directory would win over them.
    `import_paths` are folders that a workload from outside is imported from.
    """
    own = str(Path(__file__).parents[2])
    before = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(filter(None, [own, *import_paths, *before])))
    os.environ["PYTHONSAFEPATH"] = "1"


class ForkServer:
    """Forks trials from a server that has imported torch and the workload, and never ran a torch operator.

    A fork costs milliseconds where an import costs seconds; a server that touched CUDA or started threads
    could not be forked safely. It begins to import at once, so that whoever makes it early waits for it less.
    """

    def __init__(self, modules: Sequence[str]) -> None:
        self._context = multiprocessing.get_context("forkserver")
        # A process's first optimiser imports torch._dynamo, which takes a second: the server does it once.
        self._context.set_forkserver_preload(
            ["torch", "torch._dynamo", "pipelines.trial.process", *modules, "pipelines.trial.freeze_gc"]
        )
        forkserver.ensure_running()

    def start(self, spec_file: Path, world: int, env: Mapping[str, str], stay: bool = False) -> list[Child]:
        """Fork one trial; `env` and process groups need exec. With `stay` it takes turns from a pipe."""
        if env or world > 1:
            raise ValueError(
                "a forked trial has imported everything already: levels with env or ranks need exec"
            )
        ours, theirs = multiprocessing.Pipe() if stay else (None, None)
        process = self._context.Process(target=forked, args=(str(spec_file), theirs))
        with _no_main():
            process.start()
        if theirs is not None:
            theirs.close()  # else the pipe would not break when the child dies
        return [_Forked(process, ours)]

    def call(self, function: Callable[..., None], *arguments: str) -> Child:
        """Fork a process that does something else than a trial."""
        process = self._context.Process(target=function, args=arguments)
        with _no_main():
            process.start()
        return _Forked(process)


@contextmanager
def _no_main() -> Iterator[None]:
    """Keep multiprocessing from importing the main program into a trial, which needs nothing of it."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


class Exec:
    """Starts trials as fresh interpreters, one for each rank."""

    def __init__(self, module: str = "pipelines.trial.process") -> None:
        self._module = module

    def start(self, spec_file: Path, world: int, env: Mapping[str, str], stay: bool = False) -> list[Child]:
        """Start all ranks of a trial with its levels' variables; with `stay` each waits at a pipe."""
        scratch = str(spec_file.parent / "scratch")
        values = {name: text.replace("{scratch_dir}", scratch) for name, text in env.items()}
        program = [sys.executable, "-m", self._module, str(spec_file)]
        children: list[Child] = []
        for rank in range(world):
            ours, theirs = multiprocessing.Pipe() if stay else (None, None)
            inherited = [theirs.fileno()] if theirs else []
            with (spec_file.parent / "log.txt").open("ab") as log:
                process = subprocess.Popen(
                    [*program, str(rank), *map(str, inherited)],
                    env={**os.environ, **values},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    pass_fds=inherited,
                )
            if theirs is not None:
                theirs.close()
            children.append(_Executed(process, ours))
        return children


def wait(children: Sequence[Child], timeout_s: float) -> Termination | None:
    """Sleep until all processes have ended or the time is over; how they ended, if not all with status 0.

    Whatever happens, an exception out of a signal handler included, no process outlives this call.
    """
    oom_kills, deadline = _oom_kills(), time.monotonic() + timeout_s
    try:
        waiting = {child.handle: child for child in children}
        while waiting:
            left = deadline - time.monotonic()
            ready = connection.wait(list(waiting), timeout=max(0.0, left)) if left > 0 else []
            if not ready:
                late = f"did not end within {timeout_s:g} s"
                return Termination(Outcome.TIMEOUT, Failure(type="Timeout", message=late))
            for handle in ready:
                code = waiting.pop(handle).code()  # type: ignore[call-overload]
                if code != 0:  # the other ranks would wait for this one for ever
                    return _termination(code, oom_kills)
        return None
    finally:
        for child in children:
            _end(child)


def receive(children: Sequence[Child], timeout_s: float) -> list[Reply] | Termination:
    """Sleep until several processes that stay have replied; their replies, or how one of them ended.

    They are left running, except after an ending.
    """
    oom_kills = _oom_kills()
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
                code = child.code()
                end(children)
                return _termination(code, oom_kills)
        if not ready:
            end(children)
            return Termination(
                Outcome.TIMEOUT, Failure(type="Timeout", message=f"did not end within {timeout_s:g} s")
            )
    return [replies[child.pid] for child in children]


def end(children: Sequence[Child]) -> None:
    """End processes that stay, and all they started."""
    for child in children:
        if child.pipe is not None:
            child.pipe.close()
        _end(child)


def _termination(code: int | None, oom_kills_before: int) -> Termination:
    if code == -signal.SIGKILL and _oom_kills() > oom_kills_before:
        return Termination(
            Outcome.OOM,
            Failure(type="Killed", message="the kernel killed the process because memory ran out"),
        )
    if code is not None and code < 0:
        name = signal.Signals(-code).name
        return Termination(Outcome.FAILED, Failure(type=name, message=f"the process was ended by {name}"))
    return Termination(
        Outcome.FAILED,
        Failure(type="NoRecord", message=f"the process ended with status {code} and left no record"),
    )


def _end(child: Child) -> None:
    """Kill what is left of a child's process group: workers of loaders and compilers included."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return  # everything of the group has ended
    if child.code() is None:
        connection.wait([child.handle], timeout=10)
        child.code()


def _oom_kills() -> int:
    """How many processes the memory limit of this cgroup has killed so far."""
    try:
        fields = dict(line.split() for line in _OOM_COUNTER.read_text().splitlines())
    except (OSError, ValueError):
        return 0
    return int(fields.get("oom_kill", 0))


class _Forked:
    def __init__(self, process: BaseProcess, pipe: Connection | None = None) -> None:
        self._process = process
        self.pipe = pipe
        self.pid = process.pid or 0

    @property
    def handle(self) -> int:
        return self._process.sentinel

    def code(self) -> int | None:
        self._process.join(timeout=1)  # the sentinel may be readable a moment before the status is
        return self._process.exitcode


class _Executed:
    def __init__(self, process: subprocess.Popen[bytes], pipe: Connection | None = None) -> None:
        self._process = process
        self.pipe = pipe
        self.pid = process.pid
        self._handle = os.pidfd_open(process.pid)

    @property
    def handle(self) -> int:
        return self._handle

    def code(self) -> int | None:
        return self._process.poll()

    def __del__(self) -> None:
        os.close(self._handle)
