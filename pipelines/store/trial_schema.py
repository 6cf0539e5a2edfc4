"""Schemas of trials: what each is told, and what it leaves.

A trial may run in an environment that has torch, numpy and nothing else, so these are plain dataclasses and
this module imports the standard library only. `perfsweep.pipelines.store.records` validates them where it
reads them.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar

from perfsweep.pipelines.store.options import MeasureConfig

SCHEMA = 1

DEFAULT_ITERATIONS = 20
"""Of a region whose length is asked for in seconds, where no evidence tells how long an iteration takes."""

STRICT = {"extra": "forbid"}
"""Of pydantic: refuse unknown fields."""


def amount(default: Any) -> Any:
    """Declare a number that is not negative and has room in 64 bits, in pydantic's words."""
    return field(default=default, metadata={"ge": 0, "le": 2**63 - 1})


IN_A_PATH = r"^\w[\w.-]*$"
"""Pattern of what names a folder, and leads to no other."""


REPEAT = -1
"""The replicate of an evidence trial that runs the first seed once more: does the arm repeat itself?"""


class Outcome(StrEnum):
    """How a trial ended."""

    OK = "ok"
    UNSUPPORTED = "unsupported"
    INERT = "inert"
    OOM = "oom"
    TIMEOUT = "timeout"
    PREEMPTED = "preempted"
    FAILED = "failed"
    DISTURBED = "disturbed"


class Kind(StrEnum):
    """What a trial is for; only timing trials give times."""

    TIMING = "timing"
    COUNTING = "counting"
    EVIDENCE = "evidence"
    RESULT = "result"  # results that a user keeps
    COURSE = "course"  # the numbers of evidence, at the iterations that timing trials ended at
    QUALITY = "quality"  # one training with one seed, until it reaches the target
    PROFILE = "profile"


@dataclass(frozen=True, kw_only=True)
class Arm:
    """A workload configuration plus one level for each toggle.

    A `placebo` above 0 numbers a copy of the first reference arm that keeps unused memory from its set-up: a
    higher number, more memory. `version` is the digest of the code that its trials run where the sweep has
    several versions. `own` are its levels as the workload in that code declares them, without what the sweep
    itself provides.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT

    id: str = field(metadata={"pattern": IN_A_PATH})
    label: str
    levels: dict[str, str | int | float]
    placebo: int = 0
    version: str = ""
    own: dict[str, str | int | float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Keep:
    """Where the workload writes what the user keeps, and after how many iterations of a training."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT

    folder: str
    iterations: int


LOOP_BY_REGION = 3
"""Iterations of a loop for each one that a region times: some warm up, and some bring caches back."""

FOUND_ON_DISK = ("cache_hits", "cache_misses")
"""Counters of compiled code found or missed: of timing trials, because a counting trial starts with nothing.
"""


@dataclass(frozen=True, kw_only=True)
class TrialSpec:
    """Specification of one trial process."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT

    schema_version: int = SCHEMA
    sweep: str
    workload: str
    config: dict[str, Any]
    arm: Arm
    kind: Kind
    pack: str
    round: int | None
    attempt: int
    measure: MeasureConfig
    code: str
    cache_dir: str
    world: int = 1
    placement: str = ""  # of the sweep
    ranks_per_node: int | None = None  # None: all on this node
    meet: str | None = None  # HOST:PORT where ranks of several nodes meet; None: in the trial's folder
    iterations: int | None = None  # timing trials: of the region; None: as `measure` says
    server: int | None = None  # timing trials: seed of the draw that they share
    cadence: int | None = None  # timing trials: as evidence has shown it; None: as the workload says
    replicate: int = 0  # evidence and course trials: the seed's offset from `measure.seed`, or `REPEAT`
    numbers_at: tuple[int, ...] = ()  # course trials: iterations at which numbers are asked
    keep: Keep | None = None  # result trials
    replay: str | None = None  # evidence trials: folder with states of the baseline
    counter_s: float | None = None  # timing trials: between two changes of the energy counters, as seen here
    # timing trials: places of the cadence that take longer than others; None: no round has told yet
    rare: tuple[int, ...] | None = None
    installed: str = ""  # digest of the environment's packages; empty: whatever this one has

    @property
    def timed_iterations(self) -> int:
        """Iterations of the timed region of a step-shaped workload, before they are rounded to cadences."""
        return self.iterations or self.measure.iterations or DEFAULT_ITERATIONS

    @property
    def seed(self) -> int:
        """What everything random of the trial is drawn from."""
        return self.measure.seed + max(0, self.replicate)

    @property
    def node_ranks(self) -> int:
        """Ranks on each node that the trial fills."""
        return self.ranks_per_node or self.world


JOB_OOM = "JobOutOfMemory"
"""Type of failure of the trial that ran when memory ended its whole pack."""

UNWRITTEN = 74
"""Exit status of a trial that could not write what came of it; sysexits.h calls it EX_IOERR."""

_MISTAKE = "ConfigError"
_FINAL = (JOB_OOM, _MISTAKE)


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Why a trial has no result; `where` is the line that raised, with its file and number."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT

    type: str
    message: str
    where: str = ""
    traceback: str = ""

    @property
    def text(self) -> str:
        """The exception in one line."""
        return f"{self.type}: {self.message.partition(chr(10))[0]}"

    @property
    def is_final(self) -> bool:
        """Whether once is enough: a mistake is made again by every trial, and memory ends a job each time."""
        return self.type in _FINAL

    @property
    def is_mistake(self) -> bool:
        """Whether something cannot be used as it is configured, which each trial would find out."""
        return self.type == _MISTAKE


@dataclass(frozen=True, kw_only=True)
class RankFigures:
    """What the ranks of a timing trial measured, in their order.

    Attributes
    ----------
    nodes : where each ran
    region_ns : each rank's own region; the slowest one is the trial's
    collectives : share of the time in which a rank had a collective under way, mean; None where the profiler
        does not tell
    straggling : share of the time for which a rank waited in collectives for the last one to come, mean
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT

    nodes: tuple[str, ...]
    region_ns: tuple[int, ...]
    collectives: float | None = None
    straggling: float | None = None


@dataclass(frozen=True, kw_only=True)
class TrialRecord:
    """What one trial measured. Times are of the timed region; `units` were done in it, of what `unit` names
    where the workload itself has seen it: "" where only its declaration says.

    `server` is the seed of the draw that a timing trial shares with others: of addresses
    and hash seed by its fork server, of the hash seed alone in a round by exec. `mfu` is the share of the
    device's peak that the formula work of the units takes, None where either is not known. `numbers` are
    figures of the results, units included, after `reached` iterations since set-up (0: at the end of a job;
    None: not recorded), and `course` those of course trials by iteration. `counters` are a counting trial's,
    or the workload's own in a timing process. `keys` are the facts that records compared with one another
    must share.

    `files` are the bytes of the arrays that the trial wrote next to its record: where one of them has another
    length now, the record counts for nothing.

    `lost_ns` is how long others had the core of the thread that did all the work of the region: verdicts are
    on the rest, `time_ns`. None: threads, processes or a device work too, and nothing can be subtracted.

    `run_delay_ns` is how long others had the cores of the region's threads, None where the kernel does not
    tell. Faults and system time are of the region too.
    `calibration_ns` is the CPU time of a fixed piece of work before set-up, and `iteration_ns` what one
    iteration of an evidence trial took while it had a core. `cadence` is the period that their times show: 0
    where heavy ones come at no regular distance, None where there are none. From `started` to `ended` are the
    seconds that the trial cost: not those in which others had their turns, but its part of what a round does
    for all.
    `quantities` are further ones of
    the region, such as joules, and `withheld` says in one sentence each why others could not be had.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT

    schema_version: int = SCHEMA
    arm: str
    kind: Kind
    pack: str
    round: int | None
    attempt: int
    server: int | None = None
    replicate: int = 0
    outcome: Outcome
    failure: Failure | None = None
    code: str = ""
    method: str = ""
    started: float = 0.0  # seconds since the epoch
    ended: float = 0.0
    units: float = amount(0.0)
    unit: str = ""
    units_planned: float | None = None
    iterations: int = amount(0)
    region_ns: int = amount(0)
    region_cpu_ns: int = amount(0)
    lost_ns: int | None = amount(None)
    run_delay_ns: int | None = amount(None)
    minor_faults: int = amount(0)
    major_faults: int = amount(0)
    system_ns: int = amount(0)
    calibration_ns: int | None = amount(None)
    iteration_ns: int | None = amount(None)
    cadence: int | None = None
    setup_s: float = amount(0.0)
    first_iteration_s: float = amount(0.0)
    warmup_iterations: int = amount(0)
    warmup_s: float = amount(0.0)
    settled: bool = True
    alarm: str | None = None
    compile_s: float = amount(0.0)
    recompiles: int = amount(0)
    recompile_reason: str = ""
    peak_bytes: int = amount(0)
    mfu: float | None = None
    numbers: dict[str, float] = field(default_factory=dict)
    reached: int | None = None
    course: dict[int, dict[str, float]] = field(default_factory=dict)
    counters: dict[str, float | None] = field(default_factory=dict)
    disturbed: tuple[str, ...] = ()
    ranks: RankFigures | None = None
    placement: str = ""
    quantities: dict[str, float] = field(default_factory=dict)
    withheld: dict[str, str] = field(default_factory=dict)
    keys: dict[str, str] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)
    files: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, spec: TrialSpec, began: float, **results: Any) -> TrialRecord:
        """Make the record of a trial of `spec` that began at `began`, by `time.monotonic`, and ends now.

        What it cost is no difference of two times of day: a clock that is set in between makes that hours.
        """
        ended = time.time()
        return cls(
            arm=spec.arm.id,
            kind=spec.kind,
            pack=spec.pack,
            round=spec.round,
            attempt=spec.attempt,
            server=spec.server,
            replicate=spec.replicate,
            code=spec.code,
            method=spec.measure.method,
            placement=spec.placement,
            started=ended - (time.monotonic() - began),
            ended=ended,
            **results,
        )

    @property
    def draw(self) -> int | None:
        """What trials share addresses and hash seed by."""
        return self.server

    @property
    def time_ns(self) -> int:
        """Time of the timed region without what others took of it: what verdicts are on."""
        return self.region_ns - (self.lost_ns or 0)

    @property
    def ns_per_unit(self) -> float:
        """The primary figure: time of the timed region divided by units done in it."""
        return self.time_ns / self.units

    @property
    def wall_ns_per_unit(self) -> float:
        """The same in wall time."""
        return self.region_ns / self.units

    @property
    def plain_ns_per_unit(self) -> float | None:
        """Wall time where something could be subtracted from it; see `statistics.log_ratios.Cell`."""
        return None if self.lost_ns is None else self.wall_ns_per_unit

    @property
    def cpu_ns_per_unit(self) -> float:
        """The same in CPU time of the process."""
        return self.region_cpu_ns / self.units
