"""A fork server: it has imported torch and the workload, and forks every trial from there.

Run as ``python -m perfsweep.pipelines.trial.fork_server SOCKET IMPORTS`` by `execution.forks`, with `Imports`
as JSON. A fork costs milliseconds where imports cost seconds. One server is one draw of library addresses
and hash seed, which all of its trials share: so that effects can be judged by several draws, it is a process
of our own that ends and starts again, and not the one for life that multiprocessing has. Nor do its children
inherit a start method: their loaders start workers as a user's do.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import select
import signal
import socket
import struct
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from perfsweep.pipelines import own_code
from perfsweep.pipelines.trial import scratch, shared_imports
from perfsweep.pipelines.trial.parent import (
    adopt_orphans,
    children_of,
    descendants,
    detach,
    die_with_parent,
    flush_streams,
    kill_all,
)
from perfsweep.workloads import snapshot

STATUS = struct.Struct("i")
"""How a child ended, as it is written to its pipe: exit status, negative for a signal."""

MOST_BYTES = 1 << 16
"""Of one request: module, function and a few paths."""


@dataclass(frozen=True)
class Imports:
    """Modules that a server imports before it forks; `later` while the first child runs, without them.

    `shared` is a file of modules that its children would import otherwise; see
    `perfsweep.pipelines.trial.shared_imports`. `compiles` is a sweep's folder of caches, where its
    children compile; see `perfsweep.pipelines.trial.scratch.learn`.
    """

    modules: Sequence[str]
    later: Sequence[str] = ()
    shared: str = ""
    compiles: str = ""

    def __str__(self) -> str:
        return json.dumps(asdict(self))


_OF_THE_PACK = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)


def preload(imports: Imports) -> bool:
    """Import what trials need, and put it out of the collector's sight.

    A full collection over torch's objects takes a tenth of a second, which every trial would pay again, and
    it would touch and so copy every page it shares with the server. A workload that measures the collector
    puts them back first. Returns whether it may fork after that.
    """
    try:
        snapshot.install_current()
    except OSError as error:
        sys.exit(f"the server that forks trials cannot read {error.filename}: {error.strerror}")
    for module in imports.modules:
        try:
            importlib.import_module(module)
        except Exception as error:  # noqa: BLE001 - whatever a user's module raises, its trial raises and records
            if own_code.is_gone(module, error):
                sys.exit(f"the server that forks trials cannot read its own code: {error}")
    if (registry := sys.modules.get("perfsweep.workloads.registry")) is not None:
        registry.names()  # for which each trial would read a file of every package that is installed
    shared_imports.import_all(imports.shared)
    if imports.compiles:
        with suppress(Exception):  # whatever it raises, the trial that compiles raises and records
            scratch.learn(Path(imports.compiles))
    gc.collect()
    gc.freeze()
    return not (imports.shared or imports.compiles) or shared_imports.may_fork()


def serve(requests: socket.socket, later: Sequence[str] = ()) -> None:
    """Fork a child for each request, and write to its pipe how it ended, until the socket is closed.

    What it sends first says that all is imported, but for `later`: modules that all children but the first
    find imported. What a child leaves running, a daemon too, ends with it.
    """
    adopt_orphans()
    try:
        _serve(requests, later)
    finally:
        kill_all(descendants([os.getpid()]))


def _serve(requests: socket.socket, later: Sequence[str]) -> None:
    requests.send(STATUS.pack(0))
    children: dict[int, int] = {}
    ended, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda *_: None)  # without a handler nothing would be written to `wake`
    signal.set_wakeup_fd(wake)
    while True:
        ready = select.select([requests, ended], [], [])[0]
        if ended in ready:
            os.read(ended, 4096)
            _report(children)
        if requests in ready:
            request, pipes, _, _ = socket.recv_fds(requests, MOST_BYTES, 2)
            if not request:
                return
            pid = os.fork()
            if pid == 0:
                _leave_server(requests, [ended, wake, pipes[0], *children.values()])
                _run(request, pipes[1:])
            children[pid] = pipes[0]
            for pipe in pipes[1:]:
                os.close(pipe)
            requests.send(STATUS.pack(pid))
            if later:
                preload(Imports(later))
                later = ()


def branch(variables: str, imports: str, requests: int) -> None:
    """First function of a child that becomes a server itself, of trials that share what its parent imported.

    Parameters
    ----------
    variables : its own and its trials', in addition to the parent's, as a JSON object
    imports : what else it imports, as JSON of `Imports`
    requests : descriptor of its socket
    """
    _leave_signals_to_pack()
    die_with_parent()
    os.environ.update(json.loads(variables))
    snapshot.forget_originals()
    if not preload(Imports(**json.loads(imports))):
        sys.exit("imports start threads or a device: every trial imports by itself")
    with socket.socket(fileno=requests) as own, suppress(ConnectionError):
        serve(own)


def forked(spec_file: str, pipe: int | None = None) -> None:
    """First function of a forked trial: a process group of its own, streams into its log.

    `pipe` is the descriptor that one which stays takes its turns from.
    """
    # The pack imports this module too, which must not import torch.
    from perfsweep.pipelines.trial import process

    detach(Path(spec_file).with_name("log.txt"))
    if status := process.main([spec_file, *([] if pipe is None else ["0", str(pipe)])]):
        sys.exit(status)


def _leave_signals_to_pack() -> None:
    """Slurm signals every process of a job: the pack decides what ends."""
    for number in _OF_THE_PACK:
        signal.signal(number, signal.SIG_IGN)


def _report(children: dict[int, int]) -> None:
    """Write how each child that has ended did so, and end what it has left running."""
    with suppress(ChildProcessError):  # none is left
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            pid, status = ended
            if (pipe := children.pop(pid, None)) is None:
                continue  # adopted, as below
            left = [one for one in children_of(os.getpid()) if one not in children]
            kill_all([*descendants(left), *left])
            with suppress(BrokenPipeError):  # the pack has gone
                os.write(pipe, STATUS.pack(os.waitstatus_to_exitcode(status)))
            os.close(pipe)


def _leave_server(requests: socket.socket, descriptors: list[int]) -> None:
    adopt_orphans()
    signal.set_wakeup_fd(-1)
    for number in (*_OF_THE_PACK, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    requests.close()
    for descriptor in descriptors:
        os.close(descriptor)


def _run(request: bytes, pipes: list[int]) -> None:
    """Call the function that a request names, and end without what the server would do at its exit."""
    status = 1
    try:
        module, function, *arguments = json.loads(request)
        getattr(importlib.import_module(module), function)(*arguments, *pipes)
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:  # noqa: BLE001 - the last frame of a process: what it raised goes into its log
        with suppress(OSError):
            traceback.print_exc()
    finally:
        flush_streams()
        os._exit(status)


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as _requests:
        _leave_signals_to_pack()
        die_with_parent(signal.SIGCONT)  # one that was stopped would not see that its pack has gone
        _imports = Imports(**json.loads(sys.argv[2]))
        if not preload(_imports):  # it begins again
            os.execv(sys.executable, [*sys.orig_argv[:-1], str(replace(_imports, shared=""))])
        with suppress(ConnectionError):  # the pack was killed, perhaps while it waited for an answer
            serve(_requests, _imports.later)
