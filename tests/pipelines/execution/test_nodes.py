"""Ranks on another node: whatever becomes of them or of the node ends the trial, and leaves no process."""

from __future__ import annotations

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

from perfsweep.pipelines.execution import node_server, nodes
from perfsweep.pipelines.execution.allotment import VARIABLE, Allotment, Unfit
from perfsweep.pipelines.execution.node_server import NodeServer
from perfsweep.pipelines.execution.nodes import Node, OtherNodes, Ranks
from perfsweep.pipelines.execution.spawn import Exec, Termination, wait
from perfsweep.pipelines.store.records import Failure, Outcome
from perfsweep.pipelines.worker_process import Messages
from perfsweep.slurm.allocation import Allocation
from perfsweep.slurm.errors import ClusterError

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
    node = Node("n2", [sys.executable, "-m", "perfsweep.pipelines.execution.node_server"])
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


def test_a_server_that_says_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(nodes, "READY_S", 0.1)
    with pytest.raises(ClusterError, match=r"node n2 .* started no server \(none within 0.1 s\)"):
        Node("n2", ["sleep", "5"]).start(tmp_path / "spec.json", range(1), {})


@pytest.mark.slow
def test_a_node_that_lacks_what_was_asked_for_ends_the_pack_with_its_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(VARIABLE, Allotment(scratch=True).text)
    monkeypatch.setenv("PERFSWEEP_SCRATCH", "/proc/nowhere")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    node = Node("n2", [sys.executable, "-m", "perfsweep.pipelines.execution.node_server"])
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


STARTED = {
    "start": "spec.json",
    "ranks": [2, 3],
    "env": {"TASK": "answer"},
    "module": "perfsweep.pipelines.trial.process",
}


def test_ranks_of_another_node_have_ended_when_its_server_says_so(
    told: Callable[..., Ranks], tmp_path: Path
) -> None:
    for _ in range(2):
        assert wait([told("answer", '{"beat": 1}\n{"code": 0, "oom": false}')], 60) is None
    assert orders(tmp_path) == [STARTED] * 2, "the same server, and nothing is left to end"


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


def test_who_ends_its_ranks_on_another_node_waits_until_they_have(
    told: Callable[..., Ranks], tmp_path: Path
) -> None:
    ranks = told("wait")
    assert ranks.code() is None
    ranks.kill()
    assert (ranks.code(), orders(tmp_path)[1:]) == (-9, [{"end": True}])
    assert wait([told("answer", '{"code": 0, "oom": false}')], 60) is None, "the server stays"


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


def test_where_one_node_starts_none_the_ranks_of_the_others_end() -> None:
    class Broken(Noted):
        def start(self, spec_file, ranks, env):
            raise ClusterError("node n3 started no server")

    killed = []
    ranks = SimpleNamespace(kill=lambda: killed.append(True))
    others = OtherNodes(Allocation(("n1",), "localhost"), lambda ranks: 1)
    second = Noted("n2")
    second.start = lambda *words: ranks  # type: ignore[method-assign]
    others._nodes = [second, Broken("n3")]
    with pytest.raises(ClusterError, match="n3"):
        others.start(Path("spec.json"), 3, {})
    assert killed == [True]


@pytest.fixture
def line() -> Iterator[tuple[int, Messages]]:
    """The end of a line that a pack writes to, and what arrives at the other."""
    theirs, ours = os.pipe()
    messages = Messages(theirs)
    yield ours, messages
    os.close(theirs)


def test_a_node_serves_until_the_line_breaks_and_its_ranks_end_with_it(
    line: tuple[int, Messages],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    ours, messages = line
    monkeypatch.setenv("SLURMD_NODENAME", "n2")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "ends.py").write_text(
        "import os, sys; print(sys.argv[2], os.environ['A']); sys.exit(int(sys.argv[2]))"
    )
    (tmp_path / "spec.json").touch()
    server = NodeServer(messages)
    order = {"start": str(tmp_path / "spec.json"), "module": "ends", "ranks": [2], "env": {"A": "own"}}
    os.write(ours, json.dumps(order).encode() + b"\n")
    waited = node_server.connection.wait

    def wait(handles, timeout=None):
        if server._ranks and len(handles) > 1:
            found = waited([handles[1]], 60)
            os.close(ours)
            return found
        return waited(handles, timeout)

    monkeypatch.setattr(node_server.connection, "wait", wait)
    server.serve()
    monkeypatch.undo()
    assert [json.loads(text) for text in capsys.readouterr().out.splitlines()] == [
        {"node": "n2"},
        {"code": 2, "oom": False},
    ]
    assert (tmp_path / "log-n2.txt").read_text() == "2 own\n"


def test_the_server_of_a_node_ends_with_its_parent_and_leaves_signals_to_the_pack(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked, ignored = list[str](), set[int]()
    monkeypatch.setattr(node_server, "die_with_parent", lambda: asked.append(capsys.readouterr().out))
    monkeypatch.setattr(signal, "signal", lambda number, what: what is signal.SIG_IGN and ignored.add(number))
    monkeypatch.setenv("SLURMD_NODENAME", "n2")
    theirs, ours = os.pipe()
    os.close(ours)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(fileno=lambda: theirs))
    assert node_server.main() == 0
    os.close(theirs)
    assert ignored >= {signal.SIGINT, signal.SIGTERM, signal.SIGUSR2}
    assert asked == [""], "before it says that it is there"
    assert json.loads(capsys.readouterr().out) == {"node": "n2"}
