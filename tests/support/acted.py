"""Packs whose trials are acted: no process starts, and each record says at once what a test has chosen."""

from __future__ import annotations

import itertools
import math
import os
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from perfsweep.pipelines.execution.spawn import Interrupted
from perfsweep.pipelines.store.records import Kind, Outcome, TrialRecord, TrialSpec, read_spec, write_record
from perfsweep.pipelines.trial.parent import Ready, Reply, Turn

NO_PROCESS = 2**22
"""The least number that no process of Linux can have."""


class Stage:
    """What the trials of a pack are: `told` lists the specifications, `results` what records say.

    `results` are fields of a record, by label and kind of trial; `taken` are the bytes of an arm while it
    is warm; `servers` are the fork servers, in the order in which they were made. After as many trials as its
    `patience` says, a signal interrupts the pack.
    """

    def __init__(self) -> None:
        self.told: list[TrialSpec] = []
        self.results: dict[tuple[str, Kind], dict[str, Any]] = {}
        self.taken: dict[str, int] = {}
        self.servers: list[Server] = []
        self.patience = math.inf
        self.pids = itertools.count(NO_PROCESS + 1)

    def server(
        self, modules: Sequence[str], env: Any = None, early: bool = False, shared: str = ""
    ) -> Server:
        """Make a fork server; replaces the class."""
        self.servers.append(Server(self, shared))
        return self.servers[-1]

    def end(self, spec: TrialSpec, folder: Path) -> Reply:
        """The end of a trial, with its record unless it failed."""
        record = TrialRecord.of(spec, time.monotonic(), **{"outcome": Outcome.OK, **self.chosen(spec)})
        if spec.kind is not Kind.TIMING or record.outcome is Outcome.OK:
            write_record(folder, record)
        (folder / "log.txt").touch()
        if spec.keep:
            Path(spec.keep.folder).mkdir(parents=True, exist_ok=True)
            (Path(spec.keep.folder) / "kept").touch()
        return Reply(record.outcome, record.failure)

    def chosen(self, spec: TrialSpec) -> dict[str, Any]:
        """What a test has chosen for a trial."""
        return self.results.get((spec.arm.label, spec.kind), {})

    @property
    def order(self) -> list[str]:
        """Every trial in the order in which they began: label, kind, and round or seed."""
        numbers = (one.replicate if one.round is None else one.round for one in self.told)
        return [f"{one.arm.label} {one.kind} {n}" for one, n in zip(self.told, numbers, strict=True)]


class Server:
    """A fork server that forks nothing; `branches` and `rests` are what became of it."""

    def __init__(self, stage: Stage, shared: str = "", compiles: str = "") -> None:
        self.stage, self.shared, self.compiles = stage, shared, compiles
        self.started: list[str] = []
        self.rests = 0

    def start(self, spec_file: Path, world: int, env: Mapping[str, str], stay: bool = False) -> list[Any]:
        """Act one trial: to its end, or until it is warm."""
        if self.stage.patience == 0:
            raise Interrupted("SIGTERM")
        self.stage.patience -= 1
        spec = read_spec(spec_file)
        self.stage.told.append(spec)
        self.started.append(f"{spec.arm.label} {spec.kind}")
        if stay:
            return [Actor(self.stage, spec, spec_file.parent)]
        self.stage.end(spec, spec_file.parent)
        return []

    def branch(self, modules: Any = (), env: Any = None, shared: str = "", compiles: str = "") -> Server:
        """Make a branch, which is one more server."""
        self.stage.servers.append(Server(self.stage, shared, compiles))
        return self.stage.servers[-1]

    def rest(self) -> None:
        """Wait for a turn that needs all cores."""
        self.rests += 1

    def complete(self) -> None: ...

    def call(self, *words: Any) -> None: ...

    def work_on(self, cores: Collection[int]) -> None: ...

    def imported(self) -> bool:
        """Whether it is ready."""
        return True

    def own_s(self) -> float:
        """Processor time that it took."""
        return 0.0


class Actor:
    """A process of an arm that is warm, and takes turns: it is its own pipe."""

    silent_at, handle = math.inf, -1

    def __init__(self, stage: Stage, spec: TrialSpec, folder: Path) -> None:
        self.stage, self.spec, self.folder = stage, spec, folder
        self.pid, self.left = next(stage.pids), spec.timed_iterations
        self.pipe = self
        self.theirs: Connection
        self.ours: Connection
        self.theirs, self.ours = Pipe()
        taken = stage.taken.get(spec.arm.label, 0)
        self.ours.send(Reply(ready=Ready(taken, True, 10**6, self.left, True, (3,))))
        self.fileno, self.recv, self.close = self.theirs.fileno, self.theirs.recv, self.theirs.close

    def send(self, word: Any) -> None:
        """Hear whose turn it is, or that the round is over."""
        if isinstance(word, Turn):
            self.left -= word.steps
            failed = self.stage.chosen(self.spec).get("failure")
            reply = self.stage.end(self.spec, self.folder) if failed else Reply()
            self.ours.send(replace(reply, own_s=0.5) if self.left <= 0 and not failed else reply)
        else:
            self.ours.send(self.stage.end(self.spec, self.folder))

    def code(self) -> int | None:
        """It never ends by itself."""
        return None

    def kill(self) -> None: ...


def without_processes(monkeypatch: Any, stage: Stage) -> Stage:
    """Have packs of this process act their trials, on a machine of four cores that never rests."""
    module = "perfsweep.pipelines.execution"
    monkeypatch.setattr(f"{module}.servers.ForkServer", stage.server)
    monkeypatch.setattr(f"{module}.servers.wait", lambda children, timeout_s: None)
    monkeypatch.setattr(f"{module}.pack.listen_for_signals", lambda: None)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 3})
    return stage
