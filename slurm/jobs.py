"""What every executor understands: a job is a command with a name, and has a state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol


class JobState(StrEnum):
    """Where a job stands."""

    PENDING = "pending"
    RUNNING = "running"
    ENDED = "ended"  # with exit status 0
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def over(self) -> bool:
        """Whether nothing more will happen."""
        return self not in (JobState.PENDING, JobState.RUNNING)


PYTHON = "{python}"
"""First word of a command that is to run with the interpreter of the place it runs at."""


@dataclass(frozen=True)
class Job:
    """A command to run once, its additional environment, and the file that takes its output.

    `ranks` is the largest number of processes it runs side by side, each of which wants a GPU of its own.
    """

    name: str
    command: tuple[str, ...]
    log: Path
    env: Mapping[str, str] = field(default_factory=dict)
    ranks: int = 1


class Executor(Protocol):
    """A place to run jobs."""

    def submit(self, jobs: Sequence[Job]) -> None:
        """Queue jobs in order."""
        ...

    def poll(self) -> dict[str, JobState]:
        """State of every job submitted here, by name."""
        ...

    def notes(self) -> dict[str, str]:
        """What a person should know about a job beyond its state, by name."""
        ...

    def cancel(self) -> object:
        """Ask all jobs to end, and see that they do."""
        ...
