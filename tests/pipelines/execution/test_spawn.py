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
from perfsweep.pipelines.execution.forks import Forks
from perfsweep.pipelines.execution.spawn import (
    NO_RECORD,
    NOT_WRITTEN,
    Exec,
    Termination,
    failure_of,
    fix_imports,
    oom_kills_so_far,
    receive,
    termination_of,
    wait,
)
from perfsweep.pipelines.store.records import Failure, Outcome, write_rank_failure
from perfsweep.pipelines.trial.forked_trial import forked
from perfsweep.pipelines.trial.parent import Reply
from perfsweep.workloads.user_environment import INTERPRETER, user_environment

NO_EXCEPTION = "without an exception: something called os._exit or sys.exit, or a library ended it"


@pytest.mark.parametrize(
    ("code", "out_of_memory", "outcome", "kind", "message"),
    [
        (-9, True, Outcome.OOM, "Killed", "the kernel killed the process because memory ran out"),
        (-9, False, Outcome.FAILED, "SIGKILL", "the process was ended by SIGKILL"),
        (3, True, Outcome.FAILED, NO_RECORD, f"the process ended with status 3 {NO_EXCEPTION}"),
        (74, False, Outcome.FAILED, NOT_WRITTEN, "the process could not write what came of it"),
        (0, False, Outcome.FAILED, NO_RECORD, f"the process ended with status 0 {NO_EXCEPTION}"),
    ],
)
def test_an_exit_status_becomes_a_sentence(
    code: int | None, out_of_memory: bool, outcome: Outcome, kind: str, message: str
) -> None:
    assert termination_of(code, out_of_memory) == Termination(outcome, Failure(type=kind, message=message))


@pytest.mark.parametrize(
    ("text", "kills"),
    [("low 0\noom 9\noom_kill 2\n", 2), ("damaged\n", 0), (None, 0)],
    ids=["counted", "damaged", "no cgroup"],
)
def test_kills_for_memory_are_those_that_the_cgroup_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None, kills: int
) -> None:
    monkeypatch.setattr(spawn, "_OOM_COUNTER", tmp_path / "memory.events")
    if text is not None:
        (tmp_path / "memory.events").write_text(text)
    assert oom_kills_so_far() == kills


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


def test_all_ranks_are_waited_for_and_none_is_left() -> None:
    children = [Told(1), Told(2)]
    for child in children:
        child.end(0)
    assert wait(children, 60) is None
    assert all(child.killed for child in children)


def test_the_first_that_ends_badly_ends_the_others() -> None:
    first, second = Told(1), Told(2)
    second.end(3)
    ended = wait([first, second], 60)
    assert ended and ended.failure.message == "2 with 3"
    assert first.killed and second.killed


def test_who_takes_too_long_is_ended_with_the_limit_in_words() -> None:
    child = Told(1)
    ended = wait([child], 0.0)
    assert ended == Termination(Outcome.TIMEOUT, Failure(type="Timeout", message="did not end within 0 s"))
    assert child.killed


def test_who_falls_silent_counts_as_lost_long_before_the_limit() -> None:
    lively, silent = Told(1), Told(2, silent_at=time.monotonic() + 0.01)
    ended = wait([lively, silent], 600)
    assert ended and ended.failure.message == "2 with None"


def test_replies_come_in_the_order_of_the_processes() -> None:
    first, second = Told(1), Told(2)
    second.says.send(Reply(own_s=2.0))
    first.says.send(Reply(own_s=1.0))
    assert receive([first, second], 60) == [Reply(own_s=1.0), Reply(own_s=2.0)]
    assert not first.killed and not second.killed


def test_a_process_that_ends_instead_of_replying_takes_the_others_along() -> None:
    first, second = Told(1), Told(2)
    first.says.send(Reply())
    second.says.close()
    second.end(3)
    ended = receive([first, second], 60)
    assert isinstance(ended, Termination) and ended.failure.message == "2 with 3"
    assert first.killed and second.killed


def test_one_that_does_not_reply_in_time_ends_all() -> None:
    first, second = Told(1), Told(2)
    first.says.send(Reply())
    ended = receive([first, second], 0.01)
    assert isinstance(ended, Termination)
    assert (ended.outcome, ended.failure.message) == (Outcome.TIMEOUT, "did not end within 0.01 s")
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


class Other:
    """Another node, which takes all ranks but one."""

    def __init__(self) -> None:
        self.asked: list[tuple] = []

    def start(self, spec_file: Path, world: int, env: Any) -> tuple[int, list]:
        self.asked.append((spec_file, world, dict(env)))
        beside = Told(99)
        beside.end(0)
        return 1, [beside]


def test_ranks_of_other_nodes_are_started_there_with_the_same_variables_and_one_rank_stays_here(
    shows: Path,
) -> None:
    other = Other()
    children = Exec("shows", {"A": "all"}, other).start(shows, 3, {"B": "own"})
    assert other.asked == [(shows, 3, {"A": "all", "B": "own"})]
    assert wait(children, 60) is None
    assert len(children) == 2 and children[1].pid == 99
    assert [path.name for path in shows.parent.glob("rank*")] == ["rank0.txt"]
    assert wait(Exec("shows", {}, other).start(shows, 1, {}), 60) is None
    assert len(other.asked) == 1, "a single rank needs no other node"


@pytest.mark.parametrize(("world", "env"), [(2, {}), (1, {"A": "1"})])
def test_what_has_imported_everything_forks_no_ranks_and_takes_no_variables(
    world: int, env: dict[str, str]
) -> None:
    with pytest.raises(ValueError, match="levels with env or ranks need exec"):
        Forks(None).start(Path("spec.json"), world, env)  # type: ignore[arg-type]


class Asked(Forks):
    """What forks are asked for in place of what they do."""

    def _fork(self, function: Callable[..., None], *arguments: str, **more: Any) -> Any:
        return {"function": function, "arguments": arguments, **more}


def test_a_fork_that_takes_turns_has_a_pipe_for_them_and_another_has_none() -> None:
    forks = Asked(None)  # type: ignore[arg-type]
    (once,) = forks.start(Path("spec.json"), 1, {})
    assert once == {"function": forked, "arguments": ("spec.json",)}
    (stays,) = forks.start(Path("spec.json"), 1, {}, stay=True)
    with stays["ours"]:
        assert stays.keys() == {"function", "arguments", "pipe", "ours"}


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
