"""Ranks on another node: whatever becomes of them or of the node ends the trial, and leaves no process."""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from bench import alive
from waiting import until

from perfsweep.pipelines.execution import nodes
from perfsweep.pipelines.execution.allotment import VARIABLE, Allotment, Unfit
from perfsweep.pipelines.execution.nodes import Node, OtherNodes, Ranks
from perfsweep.pipelines.execution.spawn import Termination, wait
from perfsweep.pipelines.store.records import Failure, Outcome
from perfsweep.slurm.errors import ClusterError
from perfsweep.slurm.local import Allocation

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
    node = Node("n2", [sys.executable, "-m", "perfsweep.pipelines.execution.nodes"])
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
    ("number", "said"), [(signal.SIGKILL, "the process was ended by SIGKILL, on node n2")]
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
def test_a_pack_that_is_gone_takes_its_ranks_along(
    two: Callable[..., Ranks], server: Node, tmp_path: Path
) -> None:
    two()
    assert server.worker.process.stdin is not None
    server.worker.process.stdin.close()  # as the kernel does when the pack is killed
    assert nothing_is_left(tmp_path)
    assert server.worker.process.wait(60) == 0


def test_a_node_that_cannot_be_reached_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    node = Node("n2", [sys.executable, "-c", ""])
    with pytest.raises(
        ClusterError, match=r"n2 of this allocation started no server \(its step ended at once"
    ):
        node.start(tmp_path / "spec.json", range(1, 2), {})
    with pytest.raises(ClusterError, match="no-such-srun cannot be started"):
        Node("n2", ["no-such-srun"])


@pytest.mark.parametrize(
    ("says", "ready_s", "kind", "message"),
    [
        ("", 0.1, ClusterError, r"node n2 .* started no server \(none within 0.1 s\)"),
        ("""echo '{"refused": "no disk"}'; """, 600.0, Unfit, "^node n2: no disk$"),
    ],
)
def test_a_server_that_says_nothing_or_refuses_is_given_up_and_ended(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, says: str, ready_s: float, kind: type, message: str
) -> None:
    monkeypatch.setattr(nodes, "READY_S", ready_s)
    monkeypatch.setattr(nodes, "END_S", 0.1)
    node = Node("n2", ["sh", "-c", f"{says}exec sleep 600"])
    with pytest.raises(kind, match=message):
        node.start(tmp_path / "spec.json", range(1), {})
    assert (node.worker.process.poll() or 0) < 0


@pytest.mark.slow
def test_a_node_that_lacks_what_was_asked_for_ends_the_pack_with_its_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(VARIABLE, Allotment(scratch=True).text)
    monkeypatch.setenv("PERFSWEEP_SCRATCH", "/proc/nowhere")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    node = Node("n2", [sys.executable, "-m", "perfsweep.pipelines.execution.nodes"])
    with pytest.raises(
        Unfit, match=r"^node n2: asked for a folder on the node's own disk, and /proc/nowhere "
    ):
        node.start(tmp_path / "spec.json", range(1, 2), {})


class Noted(Node):
    """A node that only notes what it is asked to start."""

    def __init__(self, name: str) -> None:
        self.asked: list[int] = []

    def start(self, spec_file, ranks, env):
        self.asked = list(ranks)
        return


@pytest.mark.parametrize(
    ("world", "each", "shares"), [(4, 2, [2, [2, 3], []]), (5, 2, [2, [2, 3], [4]]), (2, 2, [2, [], []])]
)
def test_nodes_are_filled_in_the_order_of_the_ranks(world: int, each: int, shares: list) -> None:
    others = OtherNodes(Allocation(("n1",), "localhost"), lambda ranks: each)
    second, third = Noted("n2"), Noted("n3")
    others._nodes = [second, third]
    here, _ = others.start(Path("spec.json"), world, {})
    assert [here, second.asked, third.asked] == shares


SERVER = """
echo 'srun says something'; echo '{"node": "n2"}'
while read order; do
    echo "$order" >> orders
    case $order in
    *end*) echo '{"code": -9, "oom": false}';;
    *gone*) exit;;
    *deaf*) exec sleep 5;;
    *answer*) cat answer;;
    esac
done
"""
"""A server that does as it is told by the variables of the ranks and by a file, and notes its orders."""


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Ranks]]:
    """Starts ranks 2 and 3 on a node whose server answers this, once it was asked for ranks."""
    monkeypatch.chdir(tmp_path)
    made: list[Node] = []

    def start(task: str, answer: str = "") -> Ranks:
        Path("answer").write_text(f"{answer}\n")
        made[:] = made or [Node("n2", ["sh", "-c", SERVER])]
        return made[0].start(Path("spec.json"), range(2, 4), {"TASK": task})

    yield start
    for node in made:
        node.close()


def orders(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "orders").read_text().splitlines()]


@pytest.mark.parametrize(
    ("code", "oom", "outcome", "says"),
    [
        (-9, "true", Outcome.OOM, "the kernel killed the process because memory ran out, on node n2"),
        (-9, "false", Outcome.FAILED, "the process was ended by SIGKILL, on node n2"),
        (
            3,
            "false",
            Outcome.FAILED,
            "the process ended with status 3 without an exception: something called",
        ),
    ],
)
def test_how_they_ended_is_told_with_the_name_of_the_node(
    told: Callable[..., Ranks], code: int, oom: str, outcome: Outcome, says: str
) -> None:
    ended = wait([told("answer", f'{{"code": {code}, "oom": {oom}}}')], 60)
    assert ended is not None and ended.outcome is outcome
    assert ended.failure.message.startswith(says) and ended.failure.message.endswith(", on node n2")


def test_a_server_that_ends_is_a_lost_node_and_started_anew_for_the_next_trial(
    told: Callable[..., Ranks], tmp_path: Path
) -> None:
    first = told("gone")
    ended = wait([first], 60)
    assert ended == Termination(
        Outcome.FAILED, Failure(type=nodes.NODE_LOST, message="node n2 is gone: its step has ended")
    )
    again = told("answer", '{"code": 0, "oom": false}')
    assert wait([again], 60) is None and again.pid != first.pid


def test_a_server_that_obeys_ends_its_ranks_and_stays(
    told: Callable[..., Ranks], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes, "END_S", 600.0)
    ranks = told("wait")
    ranks.kill()
    asked = {"start": "spec.json", "ranks": [2, 3], "env": {"TASK": "wait"}, "module": ranks._node.module}
    assert (orders(tmp_path), ranks.code()) == ([asked, {"end": True}], -9)
    ranks.kill()
    assert len(orders(tmp_path)) == 2 and told("wait").pid == ranks.pid


def test_a_server_that_does_not_obey_is_killed(
    told: Callable[..., Ranks], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes, "END_S", 0.1)
    ranks = told("deaf")
    server = ranks._node.worker.process
    ranks.kill()
    assert server.wait(60) < 0


@pytest.mark.parametrize("seen_after", [3, 10**9])
def test_a_file_of_another_node_that_is_not_seen_yet_is_waited_for_and_given_up_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seen_after: int
) -> None:
    file, looks = tmp_path / "spec.json", itertools.count(1)

    def sleep(_: float) -> None:
        if (look := next(looks)) == seen_after:
            file.touch()
        assert look <= min(seen_after, nodes.FILE_S)

    clock = SimpleNamespace(sleep=sleep, monotonic=itertools.count().__next__)
    monkeypatch.setattr(nodes, "time", clock)
    nodes._wait_for(file)
    assert next(looks) > min(seen_after, nodes.FILE_S - 1)


def test_a_node_is_lost_that_gives_no_sign_of_life_and_any_sign_is_one(
    told: Callable[..., Ranks], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes, "SILENT_S", 3600.0)
    began = time.monotonic()
    ranks = told("answer", '{"beat": 1}')
    assert ranks.silent_at >= began + 3600
    ranks.silent_at = 0.0
    until(lambda: ranks.code() is None and ranks.silent_at > 0, "the sign of life")
    assert ranks.silent_at >= began + 3600
    ranks.silent_at = 0.0
    ended = wait([ranks], 60)
    assert ended is not None and ended.failure.type == nodes.NODE_LOST
    assert ended.failure.message == "node n2 gave no sign of life for 3600 s"
