"""Orders of a pack, and answers about the ranks of another node."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from perfsweep.pipelines.execution import node_server
from perfsweep.pipelines.execution.node_server import NodeServer
from perfsweep.pipelines.worker_process import Messages


@pytest.fixture
def line() -> Iterator[tuple[int, Messages]]:
    """The end of a line that a pack writes to, and what arrives at the other."""
    theirs, ours = os.pipe()
    messages = Messages(theirs)
    yield ours, messages
    os.close(theirs)


class Rank:
    """A rank whose end a test decides."""

    def __init__(self, *codes: int | None) -> None:
        self.codes, self.killed = list(codes), False
        self.handle = os.open(os.devnull, os.O_RDONLY)

    def code(self) -> int | None:
        return self.codes.pop(0) if len(self.codes) > 1 else self.codes[0]

    def kill(self) -> None:
        self.killed = True


@pytest.fixture
def served(line: tuple[int, Messages], monkeypatch: pytest.MonkeyPatch) -> NodeServer:
    monkeypatch.setattr(node_server, "oom_kills_so_far", lambda: 0)
    return NodeServer(line[1])


@pytest.mark.parametrize(
    ("codes", "answer"),
    [([None, None], None), ([0, None], None), ([0, 0], 0), ([None, 3], 3), ([-9, 0], -9), ([0, 3], 3)],
)
def test_ranks_are_answered_for_when_all_have_ended_or_one_has_ended_badly(
    served: NodeServer, capsys: pytest.CaptureFixture[str], codes: list[int | None], answer: int | None
) -> None:
    ranks = [Rank(code) for code in codes]
    served._ranks = [*ranks]  # type: ignore[list-item]
    served._look()
    said = capsys.readouterr().out
    assert (json.loads(said) if said else None) == (
        None if answer is None else {"code": answer, "oom": False}
    )
    assert [rank.killed for rank in ranks] == [answer is not None] * 2
    assert bool(served._ranks) == (answer is None)


def test_a_kill_for_memory_while_ranks_ran_is_told(
    served: NodeServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    served._ranks, served._oom_kills = [Rank(-9)], 2  # type: ignore[list-item]
    monkeypatch.setattr(node_server, "oom_kills_so_far", lambda: 3)
    served._look()
    assert json.loads(capsys.readouterr().out) == {"code": -9, "oom": True}


def test_an_order_to_stop_ends_ranks_as_killed_and_says_nothing_where_there_are_none(
    served: NodeServer, capsys: pytest.CaptureFixture[str]
) -> None:
    served._follow({"stop": True})
    assert capsys.readouterr().out == ""
    rank = Rank(None)
    served._ranks = [rank]  # type: ignore[list-item]
    served._follow({"stop": True})
    assert json.loads(capsys.readouterr().out) == {"code": -9, "oom": False}
    assert rank.killed


def test_nothing_is_said_while_nothing_runs(
    served: NodeServer,
    line: tuple[int, Messages],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    served._look()
    assert capsys.readouterr().out == ""
    os.close(line[0])
    waited, limits = node_server.connection.wait, list[float | None]()
    monkeypatch.setattr(
        node_server.connection,
        "wait",
        lambda handles, timeout=None: limits.append(timeout) or waited(handles, timeout),
    )
    served.serve()
    assert limits == [None], "a sign of life that nobody reads would fill the line"


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


def test_a_file_that_another_node_wrote_may_be_seen_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, slept = tmp_path / "spec.json", list[float]()

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            file.touch()

    monkeypatch.setattr(node_server.time, "sleep", sleep)
    node_server._wait_for(file)
    assert len(slept) == 3 and 0 < sum(slept) < 3
    node_server._wait_for(file)
    assert len(slept) == 3, "what is there is not waited for"
    monkeypatch.setattr(node_server, "FILE_S", 0.0)
    node_server._wait_for(tmp_path / "never")


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
