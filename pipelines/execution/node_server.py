"""On another node of an allocation: start the ranks that a pack asks for, and say how they ended.

Run as ``python -m perfsweep.pipelines.execution.node_server`` by `perfsweep.pipelines.execution.nodes`
through srun, whose streams are the line to the pack: each order and each answer is one line of JSON. When the
line breaks the pack has ended, and the ranks end with it.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from multiprocessing import connection
from pathlib import Path
from typing import Any

from perfsweep.pipelines.execution.allotment import refuse_unfit
from perfsweep.pipelines.execution.spawn import Child, Exec, oom_kills_so_far
from perfsweep.pipelines.trial.machine import environment
from perfsweep.pipelines.trial.parent import die_with_parent, node_name
from perfsweep.pipelines.worker_process import Messages
from perfsweep.slurm.element import UNFIT
from perfsweep.slurm.errors import ClusterError

BEAT_S = 5.0
"""Pause between two signs of life while ranks run."""

FILE_S = 30.0
"""A file that another node has written may be seen this much later."""


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
