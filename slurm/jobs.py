"""Jobs, and what a place to run them must do."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar

from perfsweep.slurm.site import SiteProfile
from perfsweep.slurm.states import End


class JobState(StrEnum):
    """The state of a job."""

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
    `resources` are fields of the site profile that are different for this job. `gpus` is how many it needs
    at least on this machine, where one process uses several; 0: as many as it has ranks.
    """

    name: str
    command: tuple[str, ...]
    log: Path
    env: Mapping[str, str] = field(default_factory=dict)
    ranks: int = 1
    resources: Mapping[str, Any] = field(default_factory=dict)
    gpus: int = 0


@dataclass(frozen=True)
class Refusal:
    """Why an executor cannot be used here.

    `installed` False: only users who asked need to know. `allocation`: this machine was allocated for
    the work already, so that measuring here is what is meant.
    """

    reason: str
    installed: bool = True
    allocation: bool = False


@dataclass(frozen=True)
class ExecutorContext:
    """What executors are made from; each takes what it needs.

    Attributes
    ----------
    site : how the place is asked for resources
    folder : of the sweep: executors that outlive a command keep their files in it
    name : of the sweep
    code : archive of the code that jobs import
    slots, gpus : jobs at once on this machine (None: one for each GPU, or one on CPU), and its GPUs
    call : does in this process what a job's command would do
    advanced : told a job's name and how a try of it ended, says whether that try finished more
    say : takes sentences for the person who watches
    forgiven : ends that the user wants to be tried again however often they were
    digest : of `code`, which jobs elsewhere hold it against before they start
    """

    site: SiteProfile
    folder: Path
    name: str
    code: Path
    slots: int | None = None
    gpus: int = 0
    call: Callable[[Job], None] = lambda job: None
    advanced: Callable[[str, End], bool] = lambda name, end: False
    say: Callable[[str], None] = lambda text: None
    forgiven: Collection[End] = ()
    digest: str | None = None


class Executor(ABC):
    """A place to run jobs.

    What is not abstract answers for a place that is always usable and forgets its jobs with the process.
    """

    remote: ClassVar[bool] = False
    """Whether jobs run elsewhere, and go on when the process that submitted them ends."""

    @classmethod
    @abstractmethod
    def of(cls, context: ExecutorContext) -> Executor:
        """Make one for a sweep.

        Raises
        ------
        ClusterError
            The place does not have what the sweep asks for; the message names the field.
        """

    @classmethod
    def refusal(cls, site: SiteProfile, environ: Mapping[str, str]) -> Refusal | None:
        """Say why nothing can be submitted from here now, or None."""
        return None

    @classmethod
    def warnings(cls, site: SiteProfile) -> list[str]:
        """Name fields of this profile that may act unexpectedly here; none where Slurm does not answer."""
        return []

    @classmethod
    def submitted(cls, folder: Path) -> Mapping[str, bool]:
        """Read from a sweep's folder which jobs were ever submitted, and whether each may still be alive."""
        return {}

    @classmethod
    def outputs(cls, folder: Path) -> Mapping[str, Sequence[Path]]:
        """Read from a sweep's folder where the place itself wrote what starting each job printed."""
        return {}

    @abstractmethod
    def submit(self, jobs: Sequence[Job]) -> None:
        """Queue jobs in order."""

    @abstractmethod
    def poll(self) -> dict[str, JobState]:
        """Act on what has happened; the state of every job, by name."""

    @abstractmethod
    def cancel(self, names: Iterable[str] | None = None) -> int:
        """Ask jobs to end, all by default, and see that they do; how many that were."""

    def follow(self, names: Collection[str]) -> None:
        """Take over jobs that earlier processes submitted, and try again what may be tried again."""
        return

    def look(self) -> dict[str, JobState]:
        """State of every job by one look that changes nothing."""
        return {}

    def settle(self) -> None:
        """Note which jobs have ended, and start nothing: for a sweep with nothing left to run."""
        return

    def notes(self) -> dict[str, str]:
        """What the user should know about a job beyond its state, by name."""
        return {}

    def held(self) -> list[str]:
        """Jobs that will not start until you do something."""
        return []

    def counts(self) -> str:
        """How many jobs run and wait, and what for; empty where nothing ever waits for others."""
        return ""

    def texts(self, jobs: Sequence[Job]) -> list[str]:
        """The batch scripts that `submit` would hand over."""
        return []

    def submit_last(self, job: Job) -> None:
        """Submit a job that starts when everything submitted so far has ended, unless one waits already."""
        return


EXECUTORS = {
    "slurm": "perfsweep.slurm.executor:SlurmExecutor",
    "local": "perfsweep.slurm.local:LocalExecutor",
    "inprocess": "perfsweep.slurm.local:InProcessExecutor",
}
"""Classes by the name that `cluster.executor` takes, imported when they are used; `auto` takes the first that
does not refuse."""


def executor_class(name: str) -> type[Executor]:
    """Import the executor called `name`."""
    module, _, cls = EXECUTORS[name].partition(":")
    return getattr(importlib.import_module(module), cls)
