"""A program that is run as a whole: started, followed to its end, and taken down with all its processes."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import resource
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from perfsweep.workloads.command import launcher
from perfsweep.workloads.errors import ConfigError, PerfsweepError

LIMIT = 4 << 20
"""Bytes that are kept at least, those written last."""


class Kept:
    """The last part of a stream, its length, and on demand the digest of all of it."""

    def __init__(self, limit: int = LIMIT, hashed: bool = False) -> None:
        self.limit = limit
        self.written = 0
        self._chunks: deque[bytes] = deque()
        self._held = 0
        self._digest = hashlib.sha256() if hashed else None

    def add(self, data: bytes) -> None:
        """Take in what was written next."""
        self.written += len(data)
        if self._digest:
            self._digest.update(data)
        self._chunks.append(data)
        self._held += len(data)
        while self._held - len(self._chunks[0]) >= self.limit:
            self._held -= len(self._chunks.popleft())

    @property
    def whole(self) -> bool:
        """Whether nothing was let go."""
        return self._held == self.written

    @property
    def text(self) -> str:
        """The part that was kept."""
        return b"".join(self._chunks).decode(errors="replace")

    def digest(self) -> bytes:
        """SHA-256 of everything that was written.

        Raises
        ------
        ValueError
            It was not asked for.
        """
        if self._digest is None:
            raise ValueError("this stream was not hashed")
        return self._digest.digest()

    def last_lines(self, number: int) -> list[str]:
        """The last lines that are not empty."""
        return [line for line in self.text.splitlines() if line.strip()][-number:]


_AT_ONCE = 1 << 20
"""Bytes read at a time, and room in a pipe: a program that writes much waits less often."""

LAST_LINES = 8
"""Of what a run wrote, shown where it failed."""

FIRST_LOOK_S = 0.02
"""Time between two looks at the memory of a run with several processes."""
_LOOKING_SHARE = 0.01


class RunFailed(PerfsweepError):
    """A run that did not end as it should."""


@dataclass(frozen=True)
class Run:
    """One run of a program.

    Attributes
    ----------
    name : where the program's command is written
    status : exit status, negative for a signal
    usage : what the kernel counted of all its processes, in the order of `resource.struct_rusage`
    peak_bytes : resident memory of the largest process, or of all that ran at once where that was more
    output, errors : what it wrote
    late : whether it was ended because it exceeded its time limit
    """

    name: str
    status: int
    usage: tuple[float, ...]
    peak_bytes: int
    output: Kept
    errors: Kept
    late: bool


def require_end(run: Run, expected_status: int) -> None:
    """Refuse a run that ended otherwise than it should.

    Raises
    ------
    RunFailed
        Another status, or no end in time; the message shows the last lines that it wrote.
    """
    if run.late:
        raise RunFailed(
            f"{run.name}: a run did not end in time and was killed with all it had started; see"
            f" workload.timeout and measure.timeout_s{_last_words(run)}"
        )
    if run.status != expected_status:
        raise RunFailed(
            f"{run.name}: a run ended with {_status_text(run.status)} instead of {expected_status}"
            f"{_last_words(run)}"
        )


def _status_text(status: int) -> str:
    return f"status {status}" if status >= 0 else f"signal {signal.Signals(-status).name}"


def _last_words(run: Run) -> str:
    """The last lines of what a run had to say: of its errors, or else of its output."""
    lines = (run.errors if run.errors.written else run.output).last_lines(LAST_LINES)
    return f"; last it wrote: {' | '.join(lines)}" if lines else "; it wrote nothing"


class Program:
    """Runs one command line, with the same environment and current folder each time."""

    def __init__(
        self, argv: Sequence[str], env: Mapping[str, str], folder: Path, place: str = "workload.command"
    ) -> None:
        """Find the program that is written at `place`, and start the process that will start it.

        Raises
        ------
        ConfigError
            There is no such program.
        """
        self.name, self.place = argv[0], place
        asked = {"program": executable(argv[0], env, folder, place), "argv": [*argv], "env": dict(env)}
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._launcher = subprocess.Popen(
                [sys.executable, "-I", "-S", launcher.__file__, str(theirs.fileno())],
                stdin=subprocess.PIPE,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        assert self._launcher.stdin is not None
        with self._launcher.stdin as pipe:
            pipe.write(json.dumps({**asked, "folder": str(folder)}).encode())
        self._socket.recv(1)  # it waits for the first request: its own start is no part of a run

    def run(self, deadline: float, hashed: bool = False) -> Run:
        """Run it once; at `deadline`, a `time.monotonic`, all its processes are killed.

        Raises
        ------
        ConfigError
            It cannot be started.
        RunFailed
            What starts it was killed.
        """
        output, errors = Kept(hashed=hashed), Kept()
        following = _Following(self._socket, self._launcher.pid, deadline)
        answer = following.follow({_pipe(): output, _pipe(): errors})
        if not answer:
            raise RunFailed(f"{self.name}: the process that starts it was killed")
        ended = json.loads(answer)
        if "error" in ended:
            raise ConfigError(f"{self.place}: {self.name} cannot be started: {ended['error']}")
        usage = tuple(ended["usage"])
        peak = max(int(usage[2]) * 1024, following.peak_bytes)
        return Run(self.place, ended["status"], usage, peak, output, errors, following.late)

    def close(self) -> None:
        """End what starts it, and with it everything that still runs."""
        self._socket.close()
        self._launcher.wait()


class _Following:
    """Reads what a run writes until it has ended."""

    def __init__(self, asked: socket.socket, launcher_pid: int, deadline: float) -> None:
        self._asked, self._pid, self._deadline = asked, launcher_pid, deadline
        self._look = time.monotonic() + FIRST_LOOK_S
        self.peak_bytes = 0
        self.late = False

    def follow(self, pipes: Mapping[tuple[int, int], Kept]) -> bytes:
        """Start a run that writes into `pipes` (ends to read and to write); how it ended, as JSON."""
        reading = {read: kept for (read, _), kept in pipes.items()}
        try:
            socket.send_fds(self._asked, [launcher.START], [write for _, write in pipes])
            for _, write in pipes:
                os.close(write)
            return self._answer(reading)
        except OSError:
            return b""
        finally:
            for read in reading:
                os.close(read)

    def _answer(self, reading: Mapping[int, Kept]) -> bytes:
        waiting = select.poll()
        for handle in (self._asked.fileno(), *reading):
            waiting.register(handle, select.POLLIN)
        while True:
            for handle, _ in waiting.poll(
                1000 * max(0.0, min(self._look, self._deadline) - time.monotonic())
            ):
                if handle == self._asked.fileno():
                    self._drain(reading)
                    return self._line()
                if not _take(handle, reading[handle]):
                    waiting.unregister(handle)
            self._mind_the_time()

    def _mind_the_time(self) -> None:
        now, used = time.monotonic(), time.thread_time()
        if now >= self._deadline:
            self.late, self._deadline = True, float("inf")
            self._asked.sendall(launcher.STOP)
        if now >= self._look:
            self.peak_bytes = max(self.peak_bytes, several_bytes(self._pid))
            # A look takes as long as there are processes and pages: it must stay a small share of the run.
            spent = time.thread_time() - used
            self._look = now + max(FIRST_LOOK_S, spent / _LOOKING_SHARE)

    def _drain(self, reading: Mapping[int, Kept]) -> None:
        """Read what is left: something that got away may hold a pipe open for ever."""
        for handle, kept in reading.items():
            while select.select([handle], [], [], 0)[0] and _take(handle, kept):
                pass

    def _line(self) -> bytes:
        text = b""
        while not text.endswith(b"\n") and (part := self._asked.recv(4096)):
            text += part
        return text


def _take(handle: int, kept: Kept) -> bool:
    """Read once; whether more may come."""
    data = os.read(handle, _AT_ONCE)
    kept.add(data)
    return bool(data)


def _pipe() -> tuple[int, int]:
    read, write = os.pipe()
    try:
        fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, _AT_ONCE)
    except OSError:  # a user's pipes may be limited; smaller ones do too
        return read, write
    return read, write


def executable(name: str, env: Mapping[str, str], folder: Path, place: str) -> str:
    """Find a program as a shell in `folder` would.

    Raises
    ------
    ConfigError
        There is none, or it cannot be executed.
    """
    found = shutil.which(str(folder / name) if "/" in name else name, path=env.get("PATH", os.defpath))
    if found is None:
        where = (
            f"{folder / name} does not exist, or cannot be executed"
            if "/" in name
            else f"{name} is not on PATH"
        )
        raise ConfigError(f"{place}: {where}; name a program, or its interpreter")
    return found


class Account:
    """Adds up runs; says once where one wrote more than is kept."""

    def __init__(self) -> None:
        self._runs = self._peak_bytes = self._status = 0
        self._output_bytes = self._error_bytes = 0
        self._usage = launcher.NOTHING
        self._whole = True

    def add(self, run: Run) -> None:
        """Take in a run, whatever it ended with."""
        self._runs += 1
        self._status = run.status
        self._usage = launcher.together(self._usage, run.usage)
        self._peak_bytes = max(self._peak_bytes, run.peak_bytes)
        self._output_bytes += run.output.written
        self._error_bytes += run.errors.written
        if self._whole and not (run.output.whole and run.errors.whole):
            self._whole = False
            print(
                f"a run wrote {run.output.written + run.errors.written} bytes; the last"
                f" {run.output.limit >> 20} MiB are kept, and evidence is looked for in these",
                file=sys.stderr,
                flush=True,
            )

    def counters(self) -> dict[str, float]:
        """Means over the runs, except for the exit status, of the last, and the peak."""
        runs = max(self._runs, 1)
        return {
            "exit_status": float(self._status),
            "output_bytes": self._output_bytes / runs,
            "error_bytes": self._error_bytes / runs,
            "cpu_user_s": self._usage[0] / runs,
            "cpu_system_s": self._usage[1] / runs,
            "run_peak_bytes": float(self._peak_bytes),
        }

    def usage(self) -> resource.struct_rusage:
        """All runs together, as the kernel would tell it."""
        peak_kib = -(-self._peak_bytes // 1024)
        return resource.struct_rusage((*self._usage[:2], peak_kib, *map(int, self._usage[3:])))


def several_bytes(parent: int) -> int:
    """Memory in use by the descendants of a process together, shared pages once; 0 for fewer than two.

    The kernel knows the peak of a single process better than any look at it, and without its cost.
    """
    family = descendants(parent)
    return sum(map(_proportional_bytes, family)) if len(family) > 1 else 0


def descendants(parent: int) -> list[int]:
    """Process ids of everything that `parent` started, and what that started."""
    found, waiting = list[int](), [parent]
    while waiting:
        children = _children_of(waiting.pop())
        found += children
        waiting += children
    return found


def _children_of(process: int) -> list[int]:
    """Children of all threads of a process; none if it has ended."""
    with suppress(OSError):
        tasks = [*Path(f"/proc/{process}/task").iterdir()]
        return [int(child) for task in tasks for child in _read(task / "children").split()]
    return []


def _proportional_bytes(process: int) -> int:
    lines = _read(Path(f"/proc/{process}/smaps_rollup")).splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


def _read(file: Path) -> str:
    """What a file of the kernel holds; nothing once its process has ended."""
    try:
        return file.read_text()
    except OSError:
        return ""
