"""Moves what Python calls the time of day in every process that finds this module first.

The seconds that it is off are in the file `offset` of its folder, and are read at each call. Only `time.time`
and `time.time_ns` move: the times of files are the kernel's, as on a node whose clock disagrees with the file
server's. Where its folder has a file `no_locks`, there are neither locks nor hard links either, as on some
file systems of clusters.
"""

import errno
import fcntl
import os
import time
from pathlib import Path

_OFFSET = Path(__file__).with_name("offset")
_time, _time_ns = time.time, time.time_ns


def _off() -> float:
    try:
        return float(_OFFSET.read_text())
    except (OSError, ValueError):
        return 0.0


time.time = lambda: _time() + _off()
time.time_ns = lambda: _time_ns() + int(_off() * 1e9)


def _refuse(*_: object, **__: object) -> None:
    raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))


if Path(__file__).with_name("no_locks").exists():
    fcntl.flock = os.link = _refuse
