"""Which iterations a profile covers: one, a whole job, the first of a process, or a range."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Literal

from perfsweep.pipelines.config.slice_range import parse
from perfsweep.workloads.errors import ConfigError


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

    def from_the_beginning(self) -> Slice:
        """As many iterations, from the first on."""
        return dataclasses.replace(self, start=0)


@dataclass(frozen=True)
class Situation:
    """What a slice is chosen for: a workload's shape and cadence, and the options on lengths of slices.

    `lead` is the number of iterations that profilers may want to see before the slice, `active` the length of
    a short slice, `iterations` that of one which sampling needs.
    """

    shape: Literal["steps", "job"]
    cadence: int
    lead: int
    active: int
    iterations: int


def refuse_shape(text: str, shape: Literal["steps", "job"]) -> None:
    """Refuse a whole job of what is none.

    Raises
    ------
    ConfigError
        The workload never ends.
    """
    if text == "job" and shape == "steps":
        raise ConfigError(
            "profile.slice=job: this workload trains for ever; choose step, first, or a range such as 10:40"
        )


def resolve(text: str, samples: bool, here: Situation) -> Slice:
    """The slice that `text` means; `samples` says that the profiler needs many iterations to see anything.

    Raises
    ------
    ConfigError
        The workload has no such slice.
    """
    wanted = parse(text)
    refuse_shape(text, here.shape)
    if isinstance(wanted, tuple):
        return Slice(wanted[0], wanted[1] - wanted[0])
    match wanted:
        case "first":
            return Slice(0, 1, cold=True)
        case "step":
            return Slice(here.lead, 1, movable=True)
        case "job":
            return Slice(0, None)
    if not samples:
        return Slice(here.lead, here.active, movable=True)
    if here.shape == "job":
        return Slice(0, None)
    return Slice(0, math.ceil(here.iterations / here.cadence) * here.cadence)
