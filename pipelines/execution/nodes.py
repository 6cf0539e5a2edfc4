"""The other nodes of a pack's allocation: a server on each starts ranks there and says how they ended.

On such a node this runs as ``python -m perfsweep.pipelines.execution.nodes`` through srun, whose streams are
the line to the pack: each order and each answer is one line of JSON. When the line breaks the pack has ended,
and the ranks end with it.
"""

from __future__ import annotations

import json
import math
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from multiprocessing import connection
from pathlib import Path
from typing import Any

from perfsweep.pipelines.execution.allotment import Unfit, refuse_unfit
from perfsweep.pipelines.execution.spawn import Child, Exec, Termination, oom_kills_so_far, termination_of
from perfsweep.pipelines.store.records import Failure, Outcome
from perfsweep.pipelines.trial.machine import environment
from perfsweep.pipelines.trial.parent import die_with_parent, node_name
from perfsweep.pipelines.worker_process import Messages, Worker
from perfsweep.slurm.element import UNFIT
from perfsweep.slurm.errors import ClusterError
from perfsweep.slurm.local import Allocation, free_port

BEAT_S = 5.0
"""Pause between two signs of life while ranks run."""

FILE_S = 30.0
"""A file that another node has written may be seen this much later."""

READY_S = 60.0
"""A server that has not answered by then will not."""

SILENT_S = 6 * BEAT_S
"""Silence after which a node counts as lost: a node without power closes no connection."""

END_S = 5.0
"""Time for a server to end its ranks, and for srun to end."""

BROKEN = -signal.SIGHUP
"""Exit status of a rank if the connection to its node broke."""

NODE_LOST = "NodeLost"
"""Type of failure of a trial of which a node was lost."""


class OtherNodes:
    """All nodes of an allocation but the first, which runs the pack.

    Parameters
    ----------
    allocation : the nodes
    per_node : gives the ranks on each node of a trial from the number of all its ranks
    """

    def __init__(self, allocation: Allocation, per_node: Callable[[int], int]) -> None:
        self._address = allocation.address
        self._per_node = per_node
        program = [sys.executable, "-m", "perfsweep.pipelines.execution.nodes"]
        self._nodes = [Node(name, allocation.command(name, program)) for name in allocation.nodes[1:]]

    def meeting_point(self) -> str:
        """HOST:PORT on the first node where the ranks of one trial can meet."""
        return f"{self._address}:{free_port()}"

    def start(self, spec_file: Path, world: int, env: Mapping[str, str]) -> tuple[int, list[Child]]:
        """Start the ranks of the other nodes; how many are left for the first one, and those.

        Raises
        ------
        ClusterError
            A node answers nothing.
        """
        per_node, children = self._per_node(world), []
        try:
            for number, node in enumerate(self._nodes, 1):
                ranks = range(per_node * number, min(world, per_node * (number + 1)))
                if ranks:
                    children.append(node.start(spec_file, ranks, env))
        except BaseException:
            for child in children:
                child.kill()
            raise
        return min(world, per_node), children


class Node:
    """One other node: `command` starts its server, again where that has ended."""

    def __init__(self, name: str, command: list[str]) -> None:
        self.name = name
        self.module = "perfsweep.pipelines.trial.process"
        self._command = command
        self._open()

    def _open(self) -> None:
        try:
            self.worker = Worker(self._command)
        except OSError as error:
            raise ClusterError(
                f"{self._command[0]} cannot be started ({error.strerror}): ranks on several nodes need it"
                " where the pack runs, in its container too"
            ) from error
        self._ready = False

    def start(self, spec_file: Path, ranks: range, env: Mapping[str, str]) -> Ranks:
        """Start ranks of a trial here.

        Raises
        ------
        ClusterError
            The server does not answer, or has ended and cannot be started again.
        """
        if self.worker.gone:
            self.close()
            self._open()
        self._await_server()
        self.worker.say(
            {"start": str(spec_file), "ranks": list(ranks), "env": dict(env), "module": self.module}
        )
        return Ranks(self)

    def _await_server(self) -> None:
        deadline = time.monotonic() + READY_S
        while not self._ready:
            answer = self.worker.answer(max(0.0, deadline - time.monotonic()))
            if answer is None:
                why = "its step ended at once" if self.worker.gone else f"none within {READY_S:g} s"
                self.close()
                raise ClusterError(
                    f"node {self.name} of this allocation started no server ({why}); see above what srun said"
                )
            if "refused" in answer:
                self.close()
                raise Unfit(f"node {self.name}: {answer['refused']}")
            self._ready = "node" in answer

    def close(self) -> None:
        """End the server, and with it what it started."""
        self.worker.end(END_S)

    def __del__(self) -> None:
        if hasattr(self, "worker"):
            self.close()


class Ranks(Child):
    """The ranks of one trial on another node, as one child of the pack."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._code: int | None = None
        self._out_of_memory = False
        self.pid = node.worker.process.pid
        self.handle = node.worker.messages.descriptor
        self.silent_at = time.monotonic() + SILENT_S

    def code(self) -> int | None:
        """Exit status of the first rank that did not end well, 0 where all did, None while they run."""
        for answer in self._node.worker.messages.arrived():
            self.silent_at = time.monotonic() + SILENT_S
            if "code" in answer:
                self._code, self._out_of_memory = answer["code"], answer["oom"]
                self.silent_at = math.inf
        if self._code is None and self._node.worker.messages.ended:
            self._code = BROKEN
        return self._code

    def termination(self, oom_kills_before: int) -> Termination:
        """How they ended, or that nothing is heard of them."""
        name, code = self._node.name, self._code
        if code == BROKEN:
            return _lost(f"node {name} is gone: its step has ended")
        if code is None:
            return _lost(f"node {name} gave no sign of life for {SILENT_S:g} s")
        ended = termination_of(code, self._out_of_memory)
        message = f"{ended.failure.message}, on node {name}"
        return Termination(ended.outcome, replace(ended.failure, message=message))

    def kill(self) -> None:
        """End them; a server that does not obey is ended, and started again for the next trial."""
        if self.code() is None:
            self._node.worker.say({"end": True})
        deadline = time.monotonic() + END_S
        while self.code() is None and (left := deadline - time.monotonic()) > 0:
            connection.wait([self.handle], timeout=left)
        if self._code is None or self._node.worker.gone:
            self._node.close()


def _lost(message: str) -> Termination:
    return Termination(Outcome.FAILED, Failure(type=NODE_LOST, message=message))


class NodeServer:
    """The ranks of one node; `say` takes answers."""

    def __init__(self, orders: Messages) -> None:
        self._orders = orders
        self._ranks: list[Child] = []
        self._oom_kills = 0

    def serve(self) -> None:
        """Follow orders until the line breaks."""
        say(node=node_name())
        while not self._orders.ended:
            handles = [self._orders.descriptor, *(rank.handle for rank in self._ranks)]
            if not connection.wait(handles, timeout=BEAT_S if self._ranks else None):
                say(beat=time.time())
            for order in self._orders.arrived():
                self._follow(order)
            self._look()
        self._end()

    def _follow(self, order: Mapping[str, Any]) -> None:
        if "start" not in order:
            if self._ranks:
                self._answer(-signal.SIGKILL)
            return
        spec_file, module = Path(order["start"]), order["module"]
        _wait_for(spec_file)
        self._oom_kills = oom_kills_so_far()
        starter, log = Exec(module), spec_file.with_name(f"log-{node_name()}.txt")
        for rank in order["ranks"]:
            self._ranks.append(starter.rank(spec_file, rank, order["env"], log))

    def _look(self) -> None:
        """Answer once all ranks have ended, or one of them ended otherwise than well."""
        codes = [rank.code() for rank in self._ranks]
        bad = next((code for code in codes if code), None)
        if self._ranks and (bad is not None or None not in codes):
            self._answer(bad or 0)

    def _answer(self, code: int) -> None:
        self._end()
        say(code=code, oom=oom_kills_so_far() > self._oom_kills)

    def _end(self) -> None:
        for rank in self._ranks:
            rank.kill()
        self._ranks = []


def say(**answer: Any) -> None:
    """Write one answer."""
    print(json.dumps(answer), flush=True)


def _wait_for(file: Path) -> None:
    """A file system that caches what it has looked up shows another node's files late."""
    deadline = time.monotonic() + FILE_S
    while not file.exists() and time.monotonic() < deadline:
        time.sleep(0.1)


def main(arguments: Sequence[str] = ()) -> int:
    """Serve the pack at standard input and output."""
    # Slurm signals every step of a job: the pack decides what ends.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    die_with_parent()
    try:
        refuse_unfit(environment.device_facts())
    except ClusterError as reason:
        say(refused=str(reason))
        return UNFIT
    NodeServer(Messages(sys.stdin.fileno())).serve()
    return 0


if __name__ == "__main__":
    sys.exit(main())
