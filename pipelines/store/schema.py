"""Schemas of the files of a sweep: the values that travel between stages."""

from __future__ import annotations

import time
from enum import StrEnum
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator

from pipelines.store.options import MeasureConfig, TrackingConfig
from workloads.declarations import Check, Parity

SCHEMA = 1

PLACEBO = "placebo"
"""Design of the effects that compare an arm with itself."""


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
    RESULT = "result"  # what a person takes home
    COURSE = "course"  # the numbers of evidence, at the iterations that timing trials ended at
    PROFILE = "profile"


class StoredValue(BaseModel):
    """A value that travels between stages: frozen, and strict about unknown fields; NaN stays NaN."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")


class Arm(StoredValue):
    """A workload configuration plus one level for each toggle.

    A `placebo` is a copy of the first reference that keeps junk from its set-up, the more the higher its
    number; 0 is an arm of its own.
    """

    id: str
    label: str
    levels: dict[str, str | int | float]
    placebo: int = 0


class Effect(StoredValue):
    """A comparison that the sweep was planned for: each arm of `pairs` against its base.

    `also` names the toggles that go back to their baseline together with `toggle`. With a `contrast` the
    effect is that weighted sum of the log times of its arms, and `pairs` only names the arms that it is shown
    by.
    """

    id: str
    design: str
    toggle: str
    level: str
    pairs: tuple[tuple[str, str], ...]
    reference: str | None = None
    also: tuple[str, ...] = ()
    contrast: dict[str, float] = {}

    @property
    def weights(self) -> dict[str, float]:
        """Weight of each arm's log time in the effect; they add up to zero."""
        if self.contrast:
            return self.contrast
        weights: dict[str, float] = {}
        for arm, base in self.pairs:
            weights[arm] = weights.get(arm, 0.0) + 1 / len(self.pairs)
            weights[base] = weights.get(base, 0.0) - 1 / len(self.pairs)
        return weights


class Pack(StoredValue):
    """One allocation: several rounds over its arms, in the order of `orders[round]`."""

    id: str
    orders: tuple[tuple[str, ...], ...]
    start: str  # "fork" or "exec"

    @property
    def arms(self) -> tuple[str, ...]:
        """Ids of the arms, in a fixed order."""
        return tuple(sorted(self.orders[0])) if self.orders else ()


class Refused(StoredValue):
    """An arm that a design asked for and the plan refused."""

    design: str
    toggle: str
    level: str
    reason: str


class DeclaredLevel(StoredValue):
    """What judging reads of a level: see `workloads.declarations.Level`."""

    value: str | int | float
    parity: Parity = Parity.EXACT
    bounds: dict[str, float] = {}
    witness: str | None = None


class Declared(StoredValue):
    """What a workload declares, as far as records are judged by it: reading them does not import it.

    Attributes
    ----------
    levels : by toggle, those that any arm has
    loosened : by arm and toggle, the class of a level where it is another beside the arm's other levels
    claims : whether reports make claims about this configuration; what they say stands in the workload alone
    """

    unit: str
    shape: str
    checks: tuple[Check, ...]
    levels: dict[str, tuple[DeclaredLevel, ...]]
    loosened: dict[str, dict[str, Parity]] = {}
    claims: bool = False

    def levels_of(self, arm: Arm) -> dict[str, DeclaredLevel]:
        """Look up the levels of an arm by toggle, each in its class beside the others."""
        own = {name: self._level(name, value) for name, value in arm.levels.items()}
        loosened = self.loosened.get(arm.id, {})
        return own | {name: own[name].model_copy(update={"parity": loosened[name]}) for name in loosened}

    def _level(self, toggle: str, value: str | int | float) -> DeclaredLevel:
        return next(level for level in self.levels[toggle] if level.value == value)


class Keep(StoredValue):
    """Where the workload writes what a person takes home, and after how many iterations of a training."""

    folder: str
    iterations: int


class Sweep(StoredValue):
    """What all trials of a sweep share."""

    schema_version: int = SCHEMA
    name: str
    workload: str  # as the registry finds it
    config: dict[str, Any]
    measure: MeasureConfig
    code: str  # digest of the sources that the measured code consists of
    references: dict[str, str]  # name -> arm id; the first is the default
    import_paths: tuple[str, ...] = ()  # where a workload from outside the project is imported from
    origin: str = ""  # what tells the workload from others of its name
    declared: Declared | None = None  # None: planned before it was kept
    sources: tuple[str, ...] = ()  # the user's files that jobs run copies of
    tracking: TrackingConfig = TrackingConfig()
    keep: Keep | None = None

    @model_validator(mode="before")
    @classmethod
    def _margin_belongs_to_measuring(cls, values: Any) -> Any:
        """Read sweeps kept from before the margin was an option of `measure`."""
        if not isinstance(values, dict) or "margin" not in values:
            return values
        others = {name: value for name, value in values.items() if name != "margin"}
        return {**others, "measure": {**values.get("measure", {}), "margin": values["margin"]}}


class Manifest(StoredValue):
    """The plan of a sweep as data."""

    sweep: Sweep
    arms: tuple[Arm, ...]
    effects: tuple[Effect, ...]
    packs: tuple[Pack, ...]
    refused: tuple[Refused, ...] = ()

    def arm(self, arm_id: str) -> Arm:
        """Look up an arm."""
        return next(arm for arm in self.arms if arm.id == arm_id)

    def pack(self, pack_id: str) -> Pack:
        """Look up a pack."""
        return next(pack for pack in self.packs if pack.id == pack_id)


REPEAT = -1
"""The replicate of an evidence trial that runs the first seed once more: does the arm repeat itself?"""


class TrialSpec(StoredValue):
    """Specification of one trial process."""

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
    generation: int | None = None  # of a process that stays for several rounds
    server: int | None = None  # timing trials: seed of the draw that they share
    replicate: int = 0  # evidence and course trials: the seed's offset from `measure.seed`, or `REPEAT`
    numbers_at: tuple[int, ...] = ()  # course trials: iterations at which numbers are asked
    keep: Keep | None = None  # result trials
    replay: str | None = None  # evidence trials: folder with states of the reference

    @property
    def seed(self) -> int:
        """What everything random of the trial is drawn from."""
        return self.measure.seed + max(0, self.replicate)

    @classmethod
    def of(cls, sweep: Sweep, arm: Arm, kind: Kind, pack: str, cache_dir: Path, **own: Any) -> TrialSpec:
        """Specify a trial of a sweep; `own` are fields that the sweep has otherwise or not at all."""
        shared = {
            "sweep": sweep.name,
            "workload": sweep.workload,
            "config": sweep.config,
            "arm": arm,
            "kind": kind,
            "pack": pack,
            "round": None,
            "attempt": 0,
            "measure": sweep.measure,
            "code": sweep.code,
            "cache_dir": str(cache_dir.absolute()),
        }
        return cls(**{**shared, **own})


class Failure(StoredValue):
    """Why a trial has no result; `where` is the line that raised, with its file and number."""

    type: str
    message: str
    where: str = ""
    traceback: str = ""

    @property
    def text(self) -> str:
        """The exception in one line."""
        return f"{self.type}: {self.message.partition(chr(10))[0]}"


class TrialRecord(StoredValue):
    """What one trial measured. Times are of the timed region; `units` were done in it.

    Records of one `generation` come from one process that took turns with those of other arms; None is a
    process of its own. `server` is the seed of the draw that a timing trial shares with others: of addresses
    and hash seed by its fork server, of the hash seed alone in a round by exec. `mfu` is the share of the
    device's peak that the formula work of the units takes, None where either is not known. `numbers` are
    figures of the results, units included, after `reached` iterations since set-up (0: at the end of a job;
    None: not recorded), and `course` those of course trials by iteration. `counters` are a counting trial's,
    or the workload's own in a timing process. `keys` are the facts that records compared with one another
    must share.

    `run_delay_ns` is how long others had the cores of the region's threads, None where the kernel does not
    tell; `displaced` says that it was too long. `alone`: one thread did all the work and waited for nothing
    but its core, so that CPU time can stand for wall time. Faults and system time are of the region too.
    `calibration_ns` is the CPU time of a fixed piece of work before set-up.
    """

    schema_version: int = SCHEMA
    arm: str
    kind: Kind
    pack: str
    round: int | None
    attempt: int
    generation: int | None = None
    server: int | None = None
    replicate: int = 0
    outcome: Outcome
    failure: Failure | None = None
    code: str = ""
    method: str = ""
    started: float = 0.0  # seconds since the epoch
    ended: float = 0.0
    units: float = 0.0
    units_planned: float | None = None
    iterations: int = 0
    region_ns: int = 0
    region_cpu_ns: int = 0
    run_delay_ns: int | None = None
    displaced: bool = False
    alone: bool = False
    minor_faults: int = 0
    major_faults: int = 0
    system_ns: int = 0
    calibration_ns: int | None = None
    setup_s: float = 0.0
    first_iteration_s: float = 0.0
    warmup_iterations: int = 0
    warmup_s: float = 0.0
    settled: bool = True
    alarm: str | None = None
    compile_s: float = 0.0
    recompiles: int = 0
    peak_bytes: int = 0
    mfu: float | None = None
    numbers: dict[str, float] = {}
    reached: int | None = None
    course: dict[int, dict[str, float]] = {}
    counters: dict[str, float | None] = {}
    disturbed: tuple[str, ...] = ()
    keys: dict[str, str] = {}
    environment: dict[str, Any] = {}

    @classmethod
    def of(cls, spec: TrialSpec, started: float, **results: Any) -> TrialRecord:
        """Make the record of a trial of `spec` that started at `started` and ends now."""
        return cls(
            arm=spec.arm.id,
            kind=spec.kind,
            pack=spec.pack,
            round=spec.round,
            attempt=spec.attempt,
            generation=spec.generation,
            server=spec.server,
            replicate=spec.replicate,
            code=spec.code,
            method=spec.measure.method,
            started=started,
            ended=time.time(),
            **results,
        )

    @property
    def draw(self) -> int | None:
        """What trials share addresses and hash seed by: processes that stay, or a server."""
        return self.server if self.generation is None else self.generation

    @property
    def ns_per_unit(self) -> float:
        """The primary figure: time of the timed region divided by units done in it."""
        return self.region_ns / self.units

    @property
    def cpu_ns_per_unit(self) -> float:
        """The same in CPU time of the process."""
        return self.region_cpu_ns / self.units


class Event(StoredValue):
    """One line of a pack's progress."""

    time: float
    arm: str
    kind: Kind
    round: int | None
    outcome: Outcome
    seconds: float
    reason: str = ""
