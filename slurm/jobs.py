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


@dataclass(frozen=True)
class Job:
    """A command to run once, its additional environment, and the file that takes its output."""

    name: str
    command: tuple[str, ...]
    log: Path
    env: Mapping[str, str] = field(default_factory=dict)


class Executor(Protocol):
    """A place to run jobs. Every call returns at once; nobody waits inside."""

    def submit(self, jobs: Sequence[Job]) -> None:
        """Queue jobs in order."""
        ...

    def poll(self) -> dict[str, JobState]:
        """State of every job submitted here, by name."""
        ...

    def cancel(self) -> None:
        """Ask all jobs to end, and see that they do."""
        ...
