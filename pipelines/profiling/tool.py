"""What every profiling tool is to the process that runs it, and which tool has which name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
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
    """The end of an iteration that is not watched."""


BARE = "bare"
"""No tool at all: a process that only says what the slice takes."""

_CLASSES = {
    "pyinstrument": ("sampling", "Sampling"),
    "torch": ("tracing", "Tracing"),
    "memory": ("memory", "Memory"),
    "roofline": ("roofline", "Roofline"),
    "dynamo": ("dynamo", "Dynamo"),
}
NAMES = tuple(_CLASSES)


def make(options: ProfileConfig, folder: Path) -> Tool:
    """The tool that `options` ask for; it writes into `folder`."""
    if options.tool == BARE:
        return Tool(options, folder)
    module, name = _CLASSES[options.tool]
    return getattr(import_module(f"perfsweep.pipelines.profiling.{module}"), name)(options, folder)


def refusal(tool: str, slice_: str) -> str | None:
    """One sentence why `tool` cannot be used here, or on a slice; None where it can."""
    if tool == "roofline" and slice_ == "first":
        return (
            "profile.slice=first has no roofline: counting operators and timing them cannot share the first"
            " iteration"
        )
    if tool == "pyinstrument" and find_spec("pyinstrument") is None:
        return (
            "profile.tool=pyinstrument needs the package pyinstrument, which is not installed: pip install"
            " pyinstrument"
        )
    return None
