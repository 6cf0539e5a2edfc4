"""Processes that stay: one for each arm, of which exactly one works at a time.

Where set-up or compilation dwarfs the timed part, a process for each arm and round would spend the allocation
on starting. Arms then stay in their processes and take turns in short blocks; such a generation of processes,
not a turn, is what an interval may count.

Where the machine is a crowd's, arms that stay for one round alone may take turns within it, slice by slice of
their timed regions: what troubles a core for seconds then troubles all of them alike.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from perfsweep.pipelines.execution.spawn import Child, Termination, end, receive
from perfsweep.pipelines.store.records import (
    Failure,
    Outcome,
    TrialRecord,
    TrialSpec,
    read_record,
    write_record,
    write_spec,
)
from perfsweep.pipelines.trial import scratch
from perfsweep.pipelines.trial.parent import Reply
from perfsweep.workloads.errors import RecordError

GO_ON = ""
"""What is said to a process that waits in the middle of its turn."""

MEMORY_SHARE = 0.9
"""Share of memory that the arms of a pack may take together."""


class Starter(Protocol):
    """Starts the processes of a trial; see `perfsweep.pipelines.execution.spawn`."""

    def start(self, spec_file: Path, world: int, env: Mapping[str, str], stay: bool = False) -> list[Child]:
        """Start all ranks."""
        ...


class CannotStay(Exception):
    """The arms cannot take turns: they do not fit into memory together, or one works on while it waits."""


@dataclass(frozen=True)
class Turn:
    """One turn of one arm: its spec, the folder it writes to, and the variables its levels need."""

    spec: TrialSpec
    folder: Path
    env: Mapping[str, str]


class Generation:
    """The processes of one generation, by arm. Leaving the `with` block ends them all.

    Parameters
    ----------
    starter : how processes start
    memory_bytes : memory of the device, 0 where it is unknown
    timeout_s : of set-up and warm-up together, and of each turn, or slice of one
    must_rest : whether arms wait in the middle of a turn, where none may work on
    """

    def __init__(
        self, starter: Starter, memory_bytes: int, timeout_s: float, must_rest: bool = False
    ) -> None:
        self._must_rest = must_rest
        self._starter = starter
        self._memory_bytes = memory_bytes
        self._timeout_s = timeout_s
        self._alive: dict[str, list[Child]] = {}
        self._ended: dict[str, Termination] = {}
        self._folders: list[Path] = []
        self._taken_bytes = 0

    def __enter__(self) -> Generation:
        return self

    def __exit__(self, *exception: object) -> None:
        for children in self._alive.values():
            end(children)
        self._alive.clear()
        for folder in self._folders:  # those that were killed could not
            scratch.remove(folder)

    def start(self, turn: Turn) -> None:
        """Start an arm and wait until it is warm; a failure is kept for its turns.

        Raises
        ------
        CannotStay
            With this arm the generation takes more than 0.9 of the memory, or it must rest and does not.
        """
        arm = turn.spec.arm.id
        self._folders.append(turn.folder)
        children = self._starter.start(
            write_spec(turn.folder, turn.spec), turn.spec.world, turn.env, stay=True
        )
        self._alive[arm] = children
        replies = self._replies(arm)
        self._taken_bytes += sum(reply.taken_bytes for reply in replies)
        if self._must_rest and not all(reply.rests for reply in replies):
            raise CannotStay(
                f"{turn.spec.arm.label} cannot wait in the middle of a turn, as jobs cannot, nor what has"
                " threads, workers or ranks that work on meanwhile, or a device"
            )
        if self._memory_bytes and self._taken_bytes > MEMORY_SHARE * self._memory_bytes:
            raise CannotStay(
                f"the arms take {self._taken_bytes / 2**30:.1f} GiB together, more than {MEMORY_SHARE:g} "
                f"of {self._memory_bytes / 2**30:.1f} GiB"
            )

    def run(self, turns: Sequence[Turn]) -> Iterator[TrialRecord]:
        """Let one arm work while all others wait, slice by slice of their turns; records as they end.

        A record that its process could not write is written here.
        """
        begun, started = list(turns), time.time()
        words = {turn.spec.arm.id: str(write_spec(turn.folder, turn.spec)) for turn in turns}
        while begun:
            for turn in tuple(begun):
                if self._works_on(turn.spec.arm.id, words):
                    continue
                begun.remove(turn)
                yield self._record(turn, started)

    def _works_on(self, arm: str, words: dict[str, str]) -> bool:
        """Let an arm work until it waits or ends its turn; whether it waits."""
        if arm not in self._alive:
            return False
        self._tell(arm, words[arm])
        words[arm] = GO_ON
        return any(reply.waits for reply in self._replies(arm))

    def _record(self, turn: Turn, started: float) -> TrialRecord:
        record = _record_of(turn.folder)
        if record is None:
            termination = self._ended[turn.spec.arm.id]
            record = TrialRecord.of(
                turn.spec, started, outcome=termination.outcome, failure=termination.failure
            )
            turn.folder.mkdir(parents=True, exist_ok=True)
            write_record(turn.folder, record)
        return record

    def _tell(self, arm: str, word: str) -> None:
        for child in self._alive[arm]:
            try:
                if child.pipe:
                    child.pipe.send(word)
            except OSError:
                return  # it has died; `receive` says how

    def _replies(self, arm: str) -> list[Reply]:
        """Receive what the ranks of an arm reply; one that fails, or replies that it failed, is ended."""
        replies = receive(self._alive[arm], self._timeout_s)
        if isinstance(replies, Termination):
            del self._alive[arm]
            self._ended[arm] = replies
            return []
        for reply in replies:
            if reply.outcome is not Outcome.OK:
                end(self._alive.pop(arm))
                failure = reply.failure or Failure(type="NoReason", message="the process gave no reason")
                self._ended[arm] = Termination(reply.outcome, failure)
                return []
        return replies


def _record_of(folder: Path) -> TrialRecord | None:
    try:
        return read_record(folder)
    except RecordError:
        return None  # a damaged record is no record: the termination of the process says what happened
