"""What a profile is made by and of: a tool, as its process knows it, and a slice of the iterations."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from perfsweep.pipelines.store.options import ProfileConfig
from perfsweep.pipelines.store.profiles import Cost
from perfsweep.workloads.errors import ConfigError


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


Tick = Callable[[], object]


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


SLICES = ("auto", "step", "job", "first")

Shape = Literal["steps", "job"]


@dataclass(frozen=True)
class Slice:
    """Iterations from `start` on, `length` of them; None: until the job ends.

    They count from the end of the warm-up, in a job from its beginning. `cold`: there is no warm-up, so that
    lazy set-up and compilation are in it. `movable`: a job that ends before `start` is profiled from its
    beginning.
    """

    start: int
    length: int | None
    cold: bool = False
    movable: bool = False

    def __str__(self) -> str:
        if self.cold:
            return "the first iteration of the process"
        if self.length is None:
            return "a whole job"
        end = self.start + self.length
        return f"iteration {self.start}" if self.length == 1 else f"iterations {self.start}:{end}"


def _asked_for(text: str) -> tuple[int, int] | str:
    """Read `profile.slice`: a range of iterations, or a name.

    Raises
    ------
    ConfigError
        It is neither.
    """
    if text in SLICES:
        return text
    match = re.fullmatch(r"(\d+):(\d+)", text)
    if match is None:
        raise ConfigError(
            f"profile.slice={text} is unknown; choose from: {', '.join(SLICES)}, or a range of iterations"
            " such as 10:40"
        )
    start, end = int(match[1]), int(match[2])
    if end <= start:
        raise ConfigError(
            f"profile.slice={text} is empty: a range ends after its first iteration, as 10:40 does"
        )
    return start, end


def refuse_slice(text: str, shape: Shape) -> None:
    """Refuse what is no slice, and a whole job of what is none.

    Raises
    ------
    ConfigError
        There is no such slice, or the workload never ends.
    """
    if _asked_for(text) == "job" and shape == "steps":
        raise ConfigError(
            "profile.slice=job: this workload trains for ever; choose step, first, or a range such as 10:40"
        )


def slice_of(options: ProfileConfig, samples: bool, shape: Shape, cadence: int, iterations: int) -> Slice:
    """The slice that the options mean for a workload.

    Parameters
    ----------
    samples : whether the profiler needs many iterations to see anything
    iterations : of a slice for such a profiler, at least

    Raises
    ------
    ConfigError
        The workload has no such slice.
    """
    refuse_slice(options.slice, shape)
    wanted, lead = _asked_for(options.slice), options.wait + options.warmup
    if isinstance(wanted, tuple):
        return Slice(wanted[0], wanted[1] - wanted[0])
    match wanted:
        case "first":
            return Slice(0, 1, cold=True)
        case "step":
            return Slice(lead, 1, movable=True)
        case "job":
            return Slice(0, None)
    if not samples:
        return Slice(lead, options.active, movable=True)
    return Slice(0, None if shape == "job" else math.ceil(iterations / cadence) * cadence)
