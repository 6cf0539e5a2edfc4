"""Waiting for processes of a trial, and the words for how they ended; without torch."""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Callable
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from perfsweep.pipelines.execution import spawn
from perfsweep.pipelines.execution.endings import failure_of
from perfsweep.pipelines.execution.spawn import (
    NO_RECORD,
    NOT_WRITTEN,
    Exec,
    Termination,
    fix_imports,
    receive,
    termination_of,
    wait,
)
from perfsweep.pipelines.store.records import Failure, Outcome, write_rank_failure
from perfsweep.pipelines.trial.parent import Reply
from perfsweep.workloads.user_environment import INTERPRETER, user_environment


@pytest.mark.parametrize(
    ("code", "out_of_memory", "outcome", "kind", "message"),
    [
        (-9, True, Outcome.OOM, "Killed", "the kernel killed the process because memory ran out"),
        (-9, False, Outcome.FAILED, "SIGKILL", "the process was ended by SIGKILL"),
        (74, False, Outcome.FAILED, NOT_WRITTEN, "the process could not write what came of it"),
    ],
)
def test_an_exit_status_becomes_a_sentence(
    code: int | None, out_of_memory: bool, outcome: Outcome, kind: str, message: str
) -> None:
    assert termination_of(code, out_of_memory) == Termination(outcome, Failure(type=kind, message=message))


RAISED = Failure(type="ValueError", message="mine")
KILLED = Termination(Outcome.OOM, Failure(type="Killed", message="memory"))
WORDLESS = Termination(Outcome.FAILED, Failure(type=NO_RECORD, message="status 3"))


@pytest.mark.parametrize(
    ("ended", "raised", "found"),
    [
        (WORDLESS, True, Termination(Outcome.UNSUPPORTED, RAISED)),
        (KILLED, True, KILLED),
        (WORDLESS, False, WORDLESS),
        (None, False, termination_of(0, False)),
    ],
)
def test_why_a_trial_failed_is_told_by_who_raised_unless_one_was_ended_by_force(
    tmp_path: Path, ended: Termination | None, raised: bool, found: Termination
) -> None:
    if raised:
        write_rank_failure(tmp_path, 1, Outcome.UNSUPPORTED, RAISED)
    assert failure_of(tmp_path, ended) == found


class Told:
    """A child whose end, and what it says, a test decides."""

    def __init__(self, pid: int, silent_at: float = math.inf) -> None:
        self.pid, self.silent_at = pid, silent_at
        self.handle, self._ends = os.pipe()
        self.pipe: Connection | None
        self.pipe, self.says = Pipe()
        self.killed, self._code = False, None

    def end(self, code: int | None) -> None:
        """End; without a status it only gives a sign of life."""
        self._code = code
        os.write(self._ends, b".")

    def code(self) -> int | None:
        if self._code is None:
            os.read(self.handle, 1)
        return self._code

    def termination(self, oom_kills_before: int) -> Termination:
        return Termination(Outcome.FAILED, Failure(type="Ended", message=f"{self.pid} with {self._code}"))

    def kill(self) -> None:
        self.killed = True
        assert self.pipe
        self.says.close()


def test_who_takes_too_long_is_ended_with_the_limit_in_words() -> None:
    child = Told(1)
    ended = wait([child], 0.0)
    assert ended == Termination(Outcome.TIMEOUT, Failure(type="Timeout", message="did not end within 0 s"))
    assert child.killed


def test_who_falls_silent_counts_as_lost_long_before_the_limit() -> None:
    lively, silent = Told(1), Told(2, silent_at=time.monotonic() + 0.01)
    ended = wait([lively, silent], 600)
    assert ended and ended.failure.message == "2 with None"
    assert lively.killed and silent.killed


def test_a_process_that_ends_instead_of_replying_takes_the_others_along() -> None:
    first, second = Told(1), Told(2)
    first.says.send(Reply())
    second.says.close()
    second.end(3)
    ended = receive([first, second], 60)
    assert isinstance(ended, Termination) and ended.failure.message == "2 with 3"
    assert first.killed and second.killed


def test_what_starts_here_imports_what_runs_here_and_each_folder_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = str(Path(spawn.__file__).parents[3])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["/user", own, "/more"]))
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    monkeypatch.delenv("PERFSWEEP_USER_ENVIRONMENT", raising=False)
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "FASTEST_FIRST")
    fix_imports(["/project", "/more"])
    assert os.environ["PYTHONPATH"].split(os.pathsep) == [own, "/project", "/more", "/user"]
    assert (os.environ["PYTHONSAFEPATH"], os.environ["CUDA_DEVICE_ORDER"]) == ("1", "PCI_BUS_ID")
    assert user_environment(os.environ)["PYTHONPATH"] == os.pathsep.join(["/user", own, "/more"])
    assert "PYTHONSAFEPATH" not in user_environment(os.environ)
    assert user_environment(os.environ)["CUDA_DEVICE_ORDER"] == "FASTEST_FIRST"
    os.environ.pop("PERFSWEEP_USER_ENVIRONMENT")


SHOWS = """
import json, os, sys
from pathlib import Path
spec, rank, *pipe = sys.argv[1:]
seen = {"pipe": len(pipe), "A": os.environ.get("A"), "B": os.environ.get("B"), "python": sys.executable}
seen["leads"] = os.getpgid(0) == os.getpid()
Path(spec).with_name(f"rank{rank}.txt").write_text(json.dumps(seen))
print("said", rank)
"""


@pytest.fixture
def shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A specification; the module `shows` notes what a rank of it was started with."""
    (tmp_path / "shows.py").write_text(SHOWS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "trial").mkdir()
    return tmp_path / "trial/spec.json"


def seen(spec: Path, rank: int) -> dict[str, Any]:
    return json.loads(spec.with_name(f"rank{rank}.txt").read_text())


def test_ranks_start_with_the_variables_of_all_and_of_the_levels_and_print_into_one_log(shows: Path) -> None:
    children = Exec("shows", {"A": "all", "B": "all"}).start(shows, 2, {"B": "{scratch_dir}/own"})
    assert [child.pipe for child in children] == [None, None]
    assert wait(children, 60) is None
    own = {"pipe": 0, "A": "all", "B": f"{shows.parent}/scratch/own", "python": sys.executable}
    own["leads"] = True  # a process group, to be killed with all that it has started
    assert [seen(shows, rank) for rank in (0, 1)] == [own, own]
    assert sorted((shows.parent / "log.txt").read_text().splitlines()) == ["said 0", "said 1"]


def test_one_that_stays_has_a_pipe_and_one_of_another_environment_its_interpreter(shows: Path) -> None:
    link = shows.parent / "python"
    link.symlink_to(sys.executable)
    (child,) = Exec("shows").start(shows, 1, {INTERPRETER: str(link)}, stay=True)
    assert child.pipe is not None
    assert wait([child], 60) is None
    assert (seen(shows, 0)["pipe"], seen(shows, 0)["python"]) == (1, str(link))


class First:
    """A pipe on which something happens once it was read."""

    def __init__(self, pipe: Connection, then: Callable[[], None]) -> None:
        self._pipe, self._then = pipe, then
        self.fileno = pipe.fileno

    def recv(self) -> Reply:
        reply = self._pipe.recv()
        self._then()
        return reply


def test_one_that_ends_after_its_reply_does_not_undo_the_replies_of_a_turn() -> None:
    first, second = Told(1), Told(2)
    first.says.send(Reply(own_s=1.0))

    def then() -> None:
        first.end(0)
        first.says.close()
        second.says.send(Reply(own_s=2.0))

    first.pipe = First(first.pipe, then)  # type: ignore[assignment, arg-type]
    assert receive([first, second], 60) == [Reply(own_s=1.0), Reply(own_s=2.0)]
    assert not second.killed, "that it has ended is told in its next turn"
