"""Ranks on another node: whatever becomes of them or of the node ends the trial, and leaves no process."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from bench import alive
from waiting import until

from pipelines.execution import nodes
from pipelines.execution.nodes import Node, OtherNodes, Ranks
from pipelines.execution.spawn import Exec, Termination, failure_of, wait
from pipelines.store.records import Failure, Outcome, write_rank_failure
from slurm.allocation import Allocation
from slurm.errors import ClusterError

RANK = """
import ctypes, os, signal, sys, time
from pathlib import Path
ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # as a trial's process ends with its parent
spec, rank = Path(sys.argv[1]), sys.argv[2]
(spec.parent / f".pid{rank}").write_text(str(os.getpid()))
(spec.parent / f".pid{rank}").rename(spec.parent / f"pid{rank}")
task = spec.read_text().split().pop(0) if rank == os.environ.get("FAULT") else "wait"
done = ["go"] if task == "wait" else ["pid2", "pid3"]
while not all((spec.parent / name).exists() for name in done):
    time.sleep(0.01)
sys.exit(3 if task == "exit" else 0)
"""
"""A rank that waits for a file `go`, or that the environment tells to end."""


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    """A server as srun would start it, on this node; its ranks are those above."""
    (tmp_path / "rank_of_test.py").write_text(RANK)
    (tmp_path / "spec.json").write_text("exit")
    paths = os.pathsep.join([str(tmp_path), *sys.path])
    monkeypatch.setenv("PYTHONPATH", paths)
    monkeypatch.setenv("SLURMD_NODENAME", "n2")
    node = Node("n2", [sys.executable, "-m", "pipelines.execution.node_server"])
    node.module = "rank_of_test"
    yield node
    node.close()


@pytest.fixture
def two(server: Node, tmp_path: Path) -> Callable[..., Ranks]:
    """Starts ranks 2 and 3 on the server, and waits until they run."""

    def start(**env: str) -> Ranks:
        for rank in (2, 3):
            (tmp_path / f"pid{rank}").unlink(missing_ok=True)
        ranks = server.start(tmp_path / "spec.json", range(2, 4), env)
        until(lambda: all((tmp_path / f"pid{rank}").exists() for rank in (2, 3)), "both ranks")
        return ranks

    return start


def pids(folder: Path) -> list[int]:
    return [int((folder / f"pid{rank}").read_text()) for rank in (2, 3)]


def nothing_is_left(folder: Path) -> bool:
    until(lambda: not any(map(alive, pids(folder))), "the end of both ranks")
    return True


@pytest.mark.slow
def test_ranks_of_another_node_end_well(two: Callable[..., Ranks], tmp_path: Path) -> None:
    ranks = two()
    (tmp_path / "go").touch()
    assert wait([ranks], 60) is None
    assert wait([two()], 60) is None, "the server stays for the next trial"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "said"),
    [(signal.SIGKILL, "the process was ended by SIGKILL, on node n2"), (signal.SIGSEGV, "ended by SIGSEGV")],
)
def test_a_rank_that_is_killed_ends_the_trial(
    two: Callable[..., Ranks], tmp_path: Path, number, said
) -> None:
    ranks = two()
    os.kill(pids(tmp_path)[1], number)
    ended = wait([ranks], 60)
    assert ended is not None and ended.outcome is Outcome.FAILED
    assert said in ended.failure.message
    assert nothing_is_left(tmp_path)


@pytest.mark.slow
def test_a_rank_that_ends_badly_ends_the_trial(two: Callable[..., Ranks], tmp_path: Path) -> None:
    ended = wait([two(FAULT="2")], 60)
    assert ended is not None and "status 3 without an exception" in ended.failure.message
    assert nothing_is_left(tmp_path)


@pytest.mark.slow
def test_a_rank_of_the_first_node_that_is_killed_ends_those_of_the_other(
    two: Callable[..., Ranks], tmp_path: Path
) -> None:
    ranks = two()
    own = Exec("rank_of_test").rank(tmp_path / "spec.json", 0, {}, tmp_path / "log.txt")
    until(lambda: (tmp_path / "pid0").exists(), "the rank of this node")
    os.kill(own.pid, signal.SIGKILL)
    ended = wait([own, ranks], 60)
    assert ended is not None and ended.failure.message == "the process was ended by SIGKILL"
    assert nothing_is_left(tmp_path)


@pytest.mark.slow
def test_a_node_that_is_gone_ends_the_trial_and_the_next_one_starts_it_anew(
    two: Callable[..., Ranks], server: Node, tmp_path: Path
) -> None:
    ranks = two()
    server.process.kill()
    ended = wait([ranks], 60)
    assert ended is not None and ended.failure.type == nodes.NODE_LOST
    assert ended.failure.message == "node n2 is gone: its step has ended"
    assert nothing_is_left(tmp_path)
    again = two()
    (tmp_path / "go").touch()
    assert wait([again], 60) is None


@pytest.mark.slow
def test_a_node_that_falls_silent_counts_as_lost(
    two: Callable[..., Ranks], server: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node without power closes no connection."""
    monkeypatch.setattr(nodes, "SILENT_S", 1.0)
    monkeypatch.setattr(nodes, "END_S", 0.5)
    ranks = two()
    os.kill(server.process.pid, signal.SIGSTOP)
    ended = wait([ranks], 60)
    assert ended is not None and ended.failure.type == nodes.NODE_LOST
    assert "gave no sign of life" in ended.failure.message
    assert nothing_is_left(tmp_path)


def test_silence_and_death_are_seen_within_a_minute() -> None:
    """Time to see it, to ask the server to end its ranks, and to end the server."""
    assert nodes.SILENT_S + nodes.END_S + 3 * nodes.END_S < 60


@pytest.mark.slow
def test_a_trial_that_takes_too_long_leaves_nothing_on_the_other_node(
    two: Callable[..., Ranks], tmp_path: Path
) -> None:
    ended = wait([two()], 0.1)
    assert ended is not None and ended.outcome is Outcome.TIMEOUT
    assert nothing_is_left(tmp_path)


@pytest.mark.slow
def test_a_pack_that_is_gone_takes_its_ranks_along(
    two: Callable[..., Ranks], server: Node, tmp_path: Path
) -> None:
    two()
    assert server.process.stdin is not None
    server.process.stdin.close()  # as the kernel does when the pack is killed
    assert nothing_is_left(tmp_path)
    assert server.process.wait(60) == 0


def test_a_node_that_cannot_be_reached_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    node = Node("n2", [sys.executable, "-c", ""])
    with pytest.raises(ClusterError, match="node n2 of this allocation started no server"):
        node.start(tmp_path / "spec.json", range(1, 2), {})
    with pytest.raises(ClusterError, match="no-such-srun cannot be started"):
        Node("n2", ["no-such-srun"])


class Noted(Node):
    """A node that only notes what it is asked to start."""

    def __init__(self, name: str) -> None:
        self.asked: list[int] = []

    def start(self, spec_file, ranks, env):
        self.asked = list(ranks)
        return


@pytest.mark.parametrize(
    ("world", "beside", "shares"),
    [(2, 1, [1, [1], []]), (4, 2, [2, [2, 3], []]), (5, 2, [2, [2, 3], [4]]), (2, 2, [2, [], []])],
)
def test_nodes_are_filled_in_the_order_of_the_ranks(world: int, beside: int, shares: list) -> None:
    others = OtherNodes(Allocation(("n1",), "localhost"), lambda ranks: beside)
    second, third = Noted("n2"), Noted("n3")
    others._nodes = [second, third]
    here, _ = others.start(Path("spec.json"), world, {})
    assert [here, second.asked, third.asked] == shares


def test_ranks_meet_on_the_first_node() -> None:
    host, _, port = (
        OtherNodes(Allocation(("n1",), "10.0.0.1"), lambda ranks: 1).meeting_point().partition(":")
    )
    assert host == "10.0.0.1" and 1024 < int(port) < 65536


def raised(folder: Path, *ranks: tuple[int, str]) -> None:
    for rank, text in ranks:
        write_rank_failure(folder, rank, Outcome.FAILED, Failure(type="ValueError", message=text))
        time.sleep(0.002)  # in the order of the clock


def test_the_rank_that_raised_first_says_why_a_trial_failed(tmp_path: Path) -> None:
    raised(tmp_path, (1, "the cause"), (0, "connection closed by peer"))
    by_itself = Termination(Outcome.FAILED, Failure(type="NoRecord", message="status 1"))
    assert failure_of(tmp_path, by_itself).failure.message == "the cause"
    assert failure_of(tmp_path, None).failure.message == "the cause"


def test_what_was_killed_explains_what_others_raised(tmp_path: Path) -> None:
    raised(tmp_path, (0, "connection closed by peer"))
    killed = Termination(Outcome.FAILED, Failure(type="SIGKILL", message="the process was ended by SIGKILL"))
    assert failure_of(tmp_path, killed) is killed


def test_ranks_of_one_node_need_no_other(tmp_path: Path) -> None:
    (tmp_path / "ok.py").write_text("")
    (tmp_path / "spec.json").write_text("")
    children = Exec("this", env={"PYTHONPATH": str(tmp_path)}).start(tmp_path / "spec.json", 2, {})
    assert len(children) == 2
    assert wait(children, 60) is None
