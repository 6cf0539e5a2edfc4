"""Which iterations a profile covers: one, a whole job, the first of a process, or a range."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Literal

from perfsweep.pipelines.store.options import ProfileConfig
from perfsweep.workloads.errors import ConfigError

NAMES = ("auto", "step", "job", "first")

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


def parse(text: str) -> tuple[int, int] | str:
    """Read `profile.slice`: a range of iterations, or a name.

    Raises
    ------
    ConfigError
        It is neither.
    """
    if text in NAMES:
        return text
    match = re.fullmatch(r"(\d+):(\d+)", text)
    if match is None:
        raise ConfigError(
            f"profile.slice={text} is unknown; choose from: {', '.join(NAMES)}, or a range of iterations such"
            " as 10:40"
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
    if parse(text) == "job" and shape == "steps":
        raise ConfigError(
            "profile.slice=job: this workload trains for ever; choose step, first, or a range such as 10:40"
        )


def resolve(options: ProfileConfig, samples: bool, shape: Shape, cadence: int, iterations: int) -> Slice:
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
    wanted, lead = parse(options.slice), options.wait + options.warmup
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
