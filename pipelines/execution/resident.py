"""Processes that stay: one for each arm, of which exactly one works at a time.

Where set-up or compilation dwarfs the timed part, a process for each arm and round would spend the allocation
on starting. Arms then stay in their processes and take turns in short blocks; such a generation of processes,
not a turn, is what an interval may count.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pipelines.execution.spawn import Child, Ending, end, hear
from pipelines.store.records import (
    Failure,
    Outcome,
    TrialRecord,
    TrialSpec,
    read_record,
    write_record,
    write_spec,
)
from pipelines.trial.parent import Answer
from workloads.errors import RecordError

MEMORY_SHARE = 0.9
"""Share of memory that the arms of a pack may take together."""


class Starter(Protocol):
    """Starts the processes of a trial; see `pipelines.execution.spawn`."""

    def start(self, spec_file: Path, world: int, env: Mapping[str, str], stay: bool = False) -> list[Child]:
        """Start all ranks."""
        ...


class TooLarge(Exception):
    """The arms do not fit into memory together."""


@dataclass(frozen=True)
class Told:
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
    timeout_s : of set-up and warm-up together, and of each turn
    """

    def __init__(self, starter: Starter, memory_bytes: int, timeout_s: float) -> None:
        self._starter = starter
        self._memory_bytes = memory_bytes
        self._timeout_s = timeout_s
        self._alive: dict[str, list[Child]] = {}
        self._ended: dict[str, Ending] = {}
        self._taken_bytes = 0

    def __enter__(self) -> Generation:
        return self

    def __exit__(self, *exception: object) -> None:
        for children in self._alive.values():
            end(children)
        self._alive.clear()

    def start(self, told: Told) -> None:
        """Start an arm and wait until it is warm; a failure is kept for its turns.

        Raises
        ------
        TooLarge
            With this arm the generation takes more than 0.9 of the memory.
        """
        arm = told.spec.arm.id
        children = self._starter.start(
            write_spec(told.folder, told.spec), told.spec.world, told.env, stay=True
        )
        self._alive[arm] = children
        self._taken_bytes += sum(answer.peak_bytes for answer in self._heard(arm))
        if self._memory_bytes and self._taken_bytes > MEMORY_SHARE * self._memory_bytes:
            raise TooLarge(
                f"the arms take {self._taken_bytes / 2**30:.1f} GiB together, more than {MEMORY_SHARE:g} "
                f"of {self._memory_bytes / 2**30:.1f} GiB"
            )

    def turn(self, told: Told) -> TrialRecord:
        """Let one arm work while all others wait; its record, written here where the process could not."""
        arm, started = told.spec.arm.id, time.time()
        children = self._alive.get(arm, ())
        if children:
            file = write_spec(told.folder, told.spec)
            self._tell(arm, lambda child: child.pipe.send(str(file)) if child.pipe else None)
            self._heard(arm)
        record = _record_of(told.folder)
        if record is None:
            ending = self._ended[arm]
            record = TrialRecord.of(told.spec, started, outcome=ending.outcome, failure=ending.failure)
            told.folder.mkdir(parents=True, exist_ok=True)
            write_record(told.folder, record)
        return record

    def _tell(self, arm: str, say: Callable[[Child], None]) -> None:
        for child in self._alive[arm]:
            try:
                say(child)
            except OSError:
                return  # it has died; `hear` says how

    def _heard(self, arm: str) -> list[Answer]:
        """What the ranks of an arm say; one that fails, or says that it failed, is ended."""
        said = hear(self._alive[arm], self._timeout_s)
        if isinstance(said, Ending):
            del self._alive[arm]
            self._ended[arm] = said
            return []
        for answer in said:
            if answer.outcome is not Outcome.OK:
                end(self._alive.pop(arm))
                failure = answer.failure or Failure(type="NoReason", message="the process gave no reason")
                self._ended[arm] = Ending(answer.outcome, failure)
                return []
        return said


def _record_of(folder: Path) -> TrialRecord | None:
    try:
        return read_record(folder)
    except RecordError:
        return None  # a damaged record is no record: the ending of the process says what happened
