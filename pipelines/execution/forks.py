"""What trials are forked from: servers that have imported what they need, and branches of these."""

from __future__ import annotations

import importlib
import json
import multiprocessing
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from multiprocessing import connection
from multiprocessing.connection import Connection
from pathlib import Path
from types import MappingProxyType

from perfsweep.pipelines.execution.spawn import Child, Interrupted, ServerLost, interpreter_of, wait
from perfsweep.pipelines.trial import fork_server
from perfsweep.pipelines.trial.fork_server import STATUS, Imports, forked
from perfsweep.pipelines.trial.parent import descendants
from perfsweep.workloads.user_environment import changed

START_S = 600.0
"""Seconds that a server may take to import everything, and to answer."""

_DYNAMO = "torch._dynamo"


class Forks:
    """Forks trials from a process that listens on a socket; one that does not answer in time is killed."""

    def __init__(self, requests: socket.socket) -> None:
        self._requests, self._greeted = requests, False

    def imported(self) -> bool:
        """Whether it has imported everything, and so forks at once; or has ended."""
        return self._greeted or bool(connection.wait([self._requests], timeout=0))

    def start(self, spec_file: Path, world: int, env: Mapping[str, str], stay: bool = False) -> list[Child]:
        """Fork one trial; `env` and process groups need exec. With `stay` it takes turns from a pipe."""
        if env or world > 1:
            raise ValueError(
                "a forked trial has imported everything already: levels with env or ranks need exec"
            )
        if not stay:
            return [self.call(forked, str(spec_file))]
        ours, theirs = multiprocessing.Pipe()
        with theirs:  # closed here, else the pipe would not break when the child dies
            return [self.call(forked, str(spec_file), pipe=theirs.fileno(), ours=ours)]

    def branch(
        self,
        modules: Sequence[str] = (),
        variables: Mapping[str, str] = MappingProxyType({}),
        shared: str = "",
        compiles: str = "",
    ) -> Forks:
        """Fork a server that has what this one has imported, and variables and modules of its own."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            imports = Imports(modules, shared=shared, compiles=compiles)
            words = json.dumps(dict(variables)), str(imports)
            return _Branch(ours, self.call(fork_server.branch, *words, pipe=theirs.fileno()))

    def call(
        self,
        function: Callable[..., None],
        *arguments: str,
        pipe: int | None = None,
        ours: Connection | None = None,
    ) -> Child:
        """Fork a process that calls a function of a module; it gets `pipe`, whose other end is `ours`."""
        request = json.dumps([function.__module__, function.__qualname__, *arguments]).encode()
        ended, status = os.pipe()
        try:
            self._requests.settimeout(START_S)  # which one that is closed refuses
            self._greeted = self._greeted or bool(self._requests.recv(STATUS.size))
            socket.send_fds(self._requests, [request], [status, *([] if pipe is None else [pipe])])
            answer = self._requests.recv(STATUS.size)
        except TimeoutError as error:
            self._kill()
            late = f"the server that forks trials has not answered within {START_S:g} s"
            raise ServerLost(f"{late}; see what its workload does as it is imported") from error
        except OSError:
            answer = b""
        finally:
            os.close(status)
        if not answer:
            raise ServerLost(f"the server that forks trials ended with status {self._status()}")
        return _Forked(self, STATUS.unpack(answer)[0], ended, ours)

    def _status(self) -> int | None:
        """Wait for the end of the process that listens; its exit status."""
        raise NotImplementedError

    def _kill(self) -> None:
        """End the process that listens, and wait for its end."""
        raise NotImplementedError


class ForkServer(Forks):
    """Forks trials from a server that has imported torch and the workload, and never ran a torch operator.

    A fork costs milliseconds where an import costs seconds; a server that touched CUDA or started threads
    could not be forked safely. It imports at once: made early, it is waited for less.

    Parameters
    ----------
    modules : what to import, with torch
    env : variables that it, and so every trial of it, starts with; one names its interpreter
    early : whether the first trial, which is none that is timed, starts before all is imported
    shared : file of what trials would import otherwise; see `perfsweep.pipelines.trial.shared_imports`
    """

    def __init__(
        self,
        modules: Sequence[str],
        env: Mapping[str, str] | None = None,
        early: bool = False,
        shared: str = "",
    ) -> None:
        requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        super().__init__(requests)
        self._waits_for_first = early
        # A process's first optimiser imports torch._dynamo, which takes a second: the server does it once.
        own = ["perfsweep.pipelines.trial.process", *modules]
        late = Imports(["torch", *own], [_DYNAMO])
        imports = late if early else Imports(["torch", _DYNAMO, *own], shared=shared)
        python = interpreter_of(env or {})
        with theirs:
            self._process = subprocess.Popen(
                [python, "-m", "perfsweep.pipelines.trial.fork_server", str(theirs.fileno()), str(imports)],
                env={**os.environ, **changed(os.environ, env or {})},
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                pass_fds=[theirs.fileno()],
            )

    def work_on(self, cores: Collection[int]) -> None:
        """Let it, its branches, and what they fork from now on, work on these cores alone."""
        for pid in self._family():
            with suppress(OSError):  # it has died, or the system has no such call
                os.sched_setaffinity(pid, cores)
        self._signal(signal.SIGCONT)

    def rest(self) -> None:
        """Stop it and its branches until they are to work again."""
        self._signal(signal.SIGSTOP)

    def own_s(self) -> float:
        """CPU time of the server itself and of its branches so far, in seconds."""
        ticks = 0
        for pid in self._family():
            with suppress(OSError):  # it has ended
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                ticks += sum(map(int, fields[11:15]))  # including its children that it waited for
        return ticks / os.sysconf("SC_CLK_TCK")

    def _family(self) -> list[int]:
        return [self._process.pid, *descendants([self._process.pid])]

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError):  # it has died
            os.killpg(self._process.pid, number)

    def complete(self) -> None:
        """Have everything imported before the next trial starts, and nothing while it runs."""
        if self._waits_for_first:
            wait([self.call(importlib.invalidate_caches)], START_S)
            self._waits_for_first = False

    def _status(self) -> int | None:
        return self._process.wait()

    def _kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def __del__(self) -> None:
        """End the server, and with it every process that it forked and that still runs."""
        if not hasattr(self, "_process"):
            return  # a signal came before it was there; what was opened for it closes itself
        self._requests.close()
        if not self._greeted:  # it was never used, so that its imports need not be waited for
            self._process.kill()
        with suppress(Interrupted):  # it is heard all the same: see `stop_if_interrupted`
            self._process.send_signal(signal.SIGCONT)  # one that rests would not see that
            self._process.wait()


class _Branch(Forks):
    """A server that another has forked, which ends with it."""

    def __init__(self, requests: socket.socket, process: Child) -> None:
        super().__init__(requests)
        self._process = process  # which keeps the other server

    def _status(self) -> int | None:
        connection.wait([self._process.handle], timeout=10)
        return self._process.code()

    def _kill(self) -> None:
        self._process.kill()

    def __del__(self) -> None:
        self._requests.close()


class _Forked(Child):
    def __init__(self, server: Forks, pid: int, ended: int, pipe: Connection | None = None) -> None:
        self._server = server  # which ends with its last user, and ends its children then
        self.pid = pid
        self.pipe = pipe
        self._code: int | None = None
        self.handle = ended

    def code(self) -> int | None:
        if self._code is None and connection.wait([self.handle], timeout=0):
            # Nothing to read: the server has ended, and the kernel kills what it forked.
            status = os.read(self.handle, STATUS.size)
            self._code = STATUS.unpack(status)[0] if status else -signal.SIGKILL
        return self._code

    def __del__(self) -> None:
        os.close(self.handle)
