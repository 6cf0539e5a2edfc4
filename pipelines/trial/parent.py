"""A measured process and its parent: how a forked one becomes its own, ends with it, and answers."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from dataclasses import dataclass
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from pipelines.store.records import Failure, Outcome


@dataclass(frozen=True)
class Reply:
    """What a process that stays says when it has warmed up, and after each turn."""

    outcome: Outcome = Outcome.OK
    failure: Failure | None = None
    peak_bytes: int = 0


def die_with_parent() -> None:
    """Have the kernel end this process when its parent dies, so that a killed pack leaves nothing running."""
    pr_set_pdeathsig = 1
    ctypes.CDLL(None, use_errno=True).prctl(pr_set_pdeathsig, signal.SIGKILL)


def release_server() -> None:
    """Let the fork server, and with it this process, end with the pack that started it.

    The server lives as long as anybody holds the writing end of its pipe, and each fork inherits one: a trial
    that is stuck would keep it, and itself, alive after its pack was killed.
    """
    server: Any = vars(forkserver)["_forkserver"]
    if server._forkserver_alive_fd is not None:
        os.close(server._forkserver_alive_fd)
        server._forkserver_alive_fd = None


def detach(log_file: Path) -> None:
    """Make a forked process its own: a process group, an end when its parent ends, streams into its log."""
    os.setsid()
    release_server()
    die_with_parent()
    log = os.open(log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for stream in (1, 2):
        os.dup2(log, stream)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def forked(spec_file: str, pipe: Connection | None = None) -> None:
    """First function of a forked trial: a process group of its own, streams into its log."""
    # This module is imported where no trial runs, and torch would come along.
    from pipelines.trial import process

    detach(Path(spec_file).with_name("log.txt"))
    status = process.main([spec_file], pipe)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # everything is on disk: tearing torch down would only cost time
