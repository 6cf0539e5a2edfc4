"""What every profiling tool is to the process that runs it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from perfsweep.pipelines.store.options import ProfileConfig
from perfsweep.pipelines.store.profiles import Cost


@dataclass(frozen=True)
class Findings:
    """What a tool leaves when its process is done; see `perfsweep.pipelines.store.profiles.Profile`."""

    costs: tuple[Cost, ...] = ()
    facts: tuple[tuple[str, float | str | None], ...] = ()
    findings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Measured:
    """What is known of the slice without the tool, and how many iterations there were with it.

    `iteration_ns` and `phases` are of one iteration; a phase inside another is called ``outer/inner`` and is
    part of it.
    """

    iteration_ns: float
    phases: dict[str, float]
    iterations: int


Tick = Callable[[], None]


class Tool:
    """A profiler. This one sees nothing: subclasses override what they need.

    `samples`: needs many iterations to see anything. `watches_before`: wants to see iterations before the
    slice. `needs_phases`: has nothing to say without their times, so that the recorder is on in any case.
    """

    samples = False
    watches_before = False
    needs_phases = False

    def __init__(self, options: ProfileConfig, folder: Path) -> None:
        self.options, self.folder = options, folder

    @contextmanager
    def around(self) -> Iterator[None]:
        """Around the whole process, from before set-up on."""
        yield

    @contextmanager
    def resting(self) -> Iterator[None]:
        """Around a repetition without the tool: its work between blocks must cost nothing there."""
        yield

    @contextmanager
    def block(self, lead: int, length: int | None) -> Iterator[Tick]:
        """Around a repetition of `lead` iterations and the slice; what it yields ends each iteration."""
        yield nothing

    def phase(self, name: str) -> AbstractContextManager[None] | None:
        """What a phase of a profiled iteration is wrapped in; None: the tool does not care."""
        return None

    def finish(self, measured: Measured) -> Findings:
        """Write files, and say what was found; called once, after the last repetition."""
        return Findings()


def nothing() -> None:
    """The end of an iteration that nobody watches."""
