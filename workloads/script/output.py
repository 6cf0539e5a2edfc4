"""What a script prints, kept within bounds: its first part and its last."""

from __future__ import annotations

import io
import sys
from collections import deque
from contextlib import ExitStack
from typing import Any, BinaryIO, cast

FIRST_BYTES, LAST_BYTES = 4 << 20, 256 << 10
"""Of each of the two streams: a progress bar's day fits, and a thousand trials do not fill a disk."""


class Output:
    """Both streams of a script, from `start` to `undo`."""

    def __init__(self, first: int = FIRST_BYTES, last: int = LAST_BYTES) -> None:
        self._limits = first, last
        self._errors: Bounded | None = None

    def start(self, undo: ExitStack) -> None:
        """Put bounded streams in the place of ``sys.stdout`` and ``sys.stderr``."""
        for name in ("stdout", "stderr"):
            before = getattr(sys, name)
            if not hasattr(before, "buffer"):
                continue  # something of the process's own that is no file
            bounded = Bounded(before.buffer, *self._limits)
            stream = io.TextIOWrapper(
                cast(BinaryIO, bounded), before.encoding, "backslashreplace", line_buffering=name == "stderr"
            )
            undo.callback(_end, stream, bounded)
            undo.callback(setattr, sys, name, before)
            before.flush()
            setattr(sys, name, stream)
            self._errors = bounded

    def last_words(self, lines: int = 5) -> str:
        """The last lines on stderr, in one."""
        if self._errors is None:
            return ""
        sys.stderr.flush()
        text = self._errors.last.decode(errors="replace")
        kept = [line.strip() for line in text.replace("\r", "\n").splitlines() if line.strip()]
        return " / ".join(kept[-lines:])


class Bounded(io.BufferedIOBase):
    """A stream that passes its first bytes on at once, and of the rest the last ones when it ends."""

    def __init__(self, target: Any, first: int, last: int) -> None:
        self._target, self._left, self._keeps = target, first, last
        self._late = deque[bytes]()
        self._late_bytes = self._left_out = 0
        self.last = b""  # bytes that were written, kept or not

    def write(self, data: Any, /) -> int:
        """Take bytes in."""
        whole = bytes(data)
        self.last = (self.last + whole)[-4096:]
        now, later = whole[: self._left], whole[self._left :]
        if now:
            self._left -= len(now)
            self._target.write(now)
            self._target.flush()
        if later:
            self._keep(later)
        return len(whole)

    def _keep(self, data: bytes) -> None:
        self._late.append(data[-self._keeps :])
        self._late_bytes += len(self._late[-1])
        self._left_out += len(data) - len(self._late[-1])
        while self._late_bytes - len(self._late[0]) >= self._keeps:
            dropped = len(self._late.popleft())
            self._late_bytes -= dropped
            self._left_out += dropped

    def flush(self) -> None:
        """Pass on what is passed on at all."""
        self._target.flush()

    def end(self) -> None:
        """Write the last part, and how much is missing before it."""
        if self._left_out:
            self._target.write(f"\n... {self._left_out / 2**20:.1f} MB left out ...\n".encode())
        for data in self._late:
            self._target.write(data)
        self._late.clear()
        self._late_bytes = self._left_out = 0
        self._left = self._keeps
        self._target.flush()

    def writable(self) -> bool:
        """Yes."""
        return True

    def fileno(self) -> int:
        """Its own descriptor, which subprocesses and C code write to."""
        return self._target.fileno()

    def isatty(self) -> bool:
        """No: a log is none."""
        return False


def _end(stream: io.TextIOWrapper, bounded: Bounded) -> None:
    """Write what is buffered; a part that still has the stream, such as a logger, may go on writing to it."""
    stream.flush()
    bounded.end()
