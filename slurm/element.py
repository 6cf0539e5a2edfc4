"""What one array element runs: the job of its index, with our own record of how it went.

Started by path (``python -P .../slurm/element.py JOBS_FILE``) with the standard library alone, so that it is
there in milliseconds on a node where nothing is imported yet. The job's process is a child: this parent
sleeps until it ends, forwards signals, says now and then that it lives, and writes how it ended before Slurm
can. After a warning that the time limit is near, a job that has advanced asks for its own requeue, so that it
continues with no user logged in.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
import uuid
from pathlib import Path
from types import FrameType
from typing import Any

FILE = "element.py"
"""This file, which lies next to the archive of the code: one that is damaged could not say so itself."""

CHANGED = 65
"""Status of a job whose code is not what was submitted (EX_DATAERR)."""

CANNOT_WRITE = 74
"""Status of an element that cannot read or write what it must (EX_IOERR)."""

UNFIT, LACKING = 71, 69
"""Status of a job whose node lacks what was asked for, and of one that lacks what no node has: the last line
of its log says what (EX_OSERR, EX_UNAVAILABLE)."""

TRY_AGAIN = 75
"""Status of a job that a signal ended after it had advanced (EX_TEMPFAIL)."""

STUCK = 79
"""Status of a job that a signal ended before it had advanced."""

REQUEUE_ME = 85
"""Status by which an element without scontrol, in a container, has its batch script queue it again."""

REQUEUE_TIMEOUT_S = 30

HEARING_S = 0.5
"""How long a signal to a group of processes may take to reach the last of them."""


class Element:
    """One start of one array element."""

    def __init__(self, jobs_file: Path, index: int) -> None:
        values = json.loads(jobs_file.read_text())
        self.job: dict[str, Any] = values["jobs"][index]
        self.settings: dict[str, Any] = values
        self.restarts = int(os.environ.get("SLURM_RESTART_COUNT", "0"))
        self.base = jobs_file.with_suffix("") / str(index)
        self.signals: list[str] = []
        self.child: subprocess.Popen[bytes] | None = None

    def run(self) -> int:
        """Run the job unless an earlier start finished it; its exit status, 128 + n for signal n."""
        self.base.parent.mkdir(parents=True, exist_ok=True)
        if any(_status_of(file) == 0 for file in self.base.parent.glob(f"{self.base.name}.end-*.json")):
            print("an earlier start of this job has finished it")
            return 0
        for number in (signal.SIGTERM, signal.SIGUSR2, signal.SIGINT):
            signal.signal(number, self._forward)
        self._write("start", {"pid": os.getpid()})
        changed = self._changed()
        with Path(self._log()).open("ab") as log:
            log.write(f"--- start {self.restarts} of job {_job_id()} on {socket.gethostname()}\n".encode())
            if changed:
                log.write(f"{changed}\n".encode())
                self._write("end", {"status": CHANGED, "signals": []})
                return CHANGED
            log.flush()
            command = [sys.executable if word == "{python}" else word for word in self.job["command"]]
            env = {**os.environ, **self.job["env"]}
            self.child = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        if self.signals:
            self.child.send_signal(signal.Signals[self.signals[-1]])
        status = self._wait(self.child)
        if status in (TRY_AGAIN, STUCK):
            self._hear()
        said = _last_line(Path(self.job["log"])) if status in (UNFIT, LACKING) else ""
        self._write("end", {"status": status, "signals": self.signals, "said": said})
        if status == TRY_AGAIN and "SIGUSR2" in self.signals:
            return self._requeue(status)
        return status

    def _changed(self) -> str:
        """Say that the snapshot of the code is not what it was when the job was submitted; else nothing."""
        code, digest = Path(self.settings["code"]), self.settings.get("digest")
        try:
            if not digest or digest_of(code.read_bytes()) == digest:
                return ""
            why = "it was changed since"
        except OSError as error:
            why = f"it cannot be read ({error.strerror})"
        return (
            f"{code} is not the code that this job was submitted with: {why}."
            " Start the same sweep command again, which writes it."
        )

    def _log(self) -> str:
        Path(self.job["log"]).parent.mkdir(parents=True, exist_ok=True)
        return self.job["log"]

    def _wait(self, child: subprocess.Popen[bytes]) -> int:
        """Sleep until the child ends; `Popen.wait` with a time-out would look twenty times a second."""
        poller = select.poll()
        with contextlib.suppress(ProcessLookupError):  # the handler of a signal has noted its end
            poller.register(os.pidfd_open(child.pid), select.POLLIN)
        while child.returncode is None:
            self._beat()
            if poller.poll(self.settings["heartbeat_s"] * 1000):
                child.wait()
        return 128 - child.returncode if child.returncode < 0 else child.returncode

    def _forward(self, number: int, frame: FrameType | None) -> None:
        self.signals.append(signal.Signals(number).name)
        if self.child is not None and self.child.poll() is None:
            self.child.send_signal(number)

    def _hear(self) -> None:
        """Slurm signals the child too, and it may have ended before the signal that ended it reached us."""
        deadline = time.monotonic() + HEARING_S
        while not self.signals and time.monotonic() < deadline:
            time.sleep(0.01)

    def _beat(self) -> None:
        try:
            self.base.with_suffix(".beat").touch()
        except OSError:
            return  # a full disk is the job's to report

    def _write(self, what: str, values: dict[str, Any]) -> None:
        """Write once: if two copies of this start are alive, the file of the first is kept."""
        facts = {
            "time": time.time(),
            "host": socket.gethostname(),
            "job": _job_id(),
            "restarts": self.restarts,
            **values,
        }
        final = self.base.parent / f"{self.base.name}.{what}-{self.restarts}.json"
        temporary = final.with_name(f".{final.name}.{uuid.uuid4().hex[:8]}.tmp")
        try:
            temporary.write_text(json.dumps(facts))
            with contextlib.suppress(FileExistsError):  # the other copy was first
                _publish(temporary, final)
        except OSError as error:
            print(f"{final}: {error.strerror}", file=sys.stderr)
        finally:
            with contextlib.suppress(OSError):  # what keeps it from being written has been told
                temporary.unlink()

    def _requeue(self, status: int) -> int:
        """Queue this job again; the status to end with, which asks the batch script for it if need be."""
        if not self.settings["requeue"] or self.restarts >= self.settings["max_retries"]:
            return status
        command = ["scontrol", "requeue", _job_id()]
        try:
            subprocess.run(command, timeout=REQUEUE_TIMEOUT_S, check=True, stdin=subprocess.DEVNULL)
        except (OSError, subprocess.SubprocessError) as error:
            print(
                f"cannot requeue itself ({error}): its batch script does it, or the command that follows the"
                " sweep submits it again",
                file=sys.stderr,
            )
            return REQUEUE_ME
        return status


def digest_of(content: bytes) -> str:
    """Digest of an archive of code: the first 12 hex digits of SHA-256."""
    return hashlib.sha256(content).hexdigest()[:12]


def _publish(temporary: Path, final: Path) -> None:
    """Give a file its name unless another has it; FileExistsError says that one has."""
    try:
        os.link(temporary, final)
    except FileExistsError:
        raise
    except OSError:  # no hard links here: what creates the claim writes, and never gives it back
        final.with_name(f".{final.name}.claim").touch(exist_ok=False)
        temporary.replace(final)


def _last_line(log: Path) -> str:
    try:
        lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    except OSError:
        return ""
    return lines[-1] if lines else ""


def _job_id() -> str:
    return os.environ.get("SLURM_JOB_ID", "")


def _status_of(file: Path) -> int | None:
    try:
        return json.loads(file.read_text())["status"]
    except (OSError, ValueError, KeyError):
        return None


def main(jobs_file: Path, index: int) -> int:
    """Run one element; where its files are damaged or closed, say so in one line."""
    try:
        element = Element(jobs_file, index)
    except (OSError, ValueError, LookupError, TypeError) as error:
        return _refuse(f"{jobs_file} cannot be read ({error})")
    try:
        return element.run()
    except OSError as error:
        return _refuse(f"{error.filename or jobs_file}: {error.strerror}")


def _refuse(reason: str) -> int:
    print(f"{reason}; fix this and start the sweep again", file=sys.stderr)
    return CANNOT_WRITE


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(os.environ.get("SLURM_ARRAY_TASK_ID", "0"))))
