"""Schemas of the files of a sweep: the values that travel between stages."""

from __future__ import annotations

import hashlib
import json
import time
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict

SCHEMA = 1


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
    PROFILE = "profile"


class Row(BaseModel):
    """A value that travels between stages: frozen, and strict about unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Measure(Row):
    """How a trial measures; see `conf/measure`."""

    rounds: int
    iterations: int
    jobs: int
    warmup_max: int
    evidence_iterations: int
    counting_iterations: int
    threads: int
    timeout_s: float
    seed: int

    @property
    def method(self) -> str:
        """Digest of what makes trials comparable: everything but how many rounds there are and when a trial is given up."""
        values = self.model_dump(mode="json", exclude={"rounds", "timeout_s"})
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]


class Arm(Row):
    """A workload configuration plus one level for each toggle."""

    id: str
    label: str
    levels: dict[str, str | int | float]


class Effect(Row):
    """A comparison that the sweep was planned for: each arm of `pairs` against its base.

    `also` names the toggles that go back to their baseline together with `toggle`.
    """

    id: str
    design: str
    toggle: str
    level: str
    pairs: tuple[tuple[str, str], ...]
    reference: str | None = None
    also: tuple[str, ...] = ()


class Pack(Row):
    """One allocation: several rounds over its arms, in the order of `orders[round]`."""

    id: str
    orders: tuple[tuple[str, ...], ...]
    start: str  # "fork" or "exec"

    @property
    def arms(self) -> tuple[str, ...]:
        """Ids of the arms, in a fixed order."""
        return tuple(sorted(self.orders[0])) if self.orders else ()


class Refused(Row):
    """An arm that a design asked for and the plan refused."""

    design: str
    toggle: str
    level: str
    reason: str


class Sweep(Row):
    """What all trials of a sweep share."""

    schema_version: int = SCHEMA
    name: str
    workload: str  # as the registry finds it
    config: dict[str, Any]
    measure: Measure
    code: str  # digest of the sources that the measured code consists of
    references: dict[str, str]  # name -> arm id; the first is the default
    import_paths: tuple[str, ...] = ()  # where a workload from outside the project is imported from
    margin: float = 0.01  # effects smaller than this are no difference
    tracking: dict[str, Any] = {}


class Manifest(Row):
    """The plan of a sweep as data."""

    sweep: Sweep
    arms: tuple[Arm, ...]
    effects: tuple[Effect, ...]
    packs: tuple[Pack, ...]
    refused: tuple[Refused, ...] = ()

    def arm(self, arm_id: str) -> Arm:
        """The arm with this id."""
        return next(arm for arm in self.arms if arm.id == arm_id)

    def pack(self, pack_id: str) -> Pack:
        """The pack with this id."""
        return next(pack for pack in self.packs if pack.id == pack_id)


class TrialSpec(Row):
    """What one trial process is told."""

    schema_version: int = SCHEMA
    sweep: str
    workload: str
    config: dict[str, Any]
    arm: Arm
    kind: Kind
    pack: str
    round: int | None
    attempt: int
    measure: Measure
    code: str
    cache_dir: str
    world: int = 1


class Failure(Row):
    """Why a trial has no result."""

    type: str
    message: str
    traceback: str = ""


class TrialRecord(Row):
    """What one trial found. Times are of the timed region; `units` were done in it.

    `numbers` are the cheap evidence of a timing trial, `counters` the counts of a counting trial. `keys` are the
    facts that records compared with one another must share.
    """

    schema_version: int = SCHEMA
    arm: str
    kind: Kind
    pack: str
    round: int | None
    attempt: int
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
    setup_s: float = 0.0
    first_iteration_s: float = 0.0
    warmup_iterations: int = 0
    warmup_s: float = 0.0
    settled: bool = True
    alarm: str | None = None
    compile_s: float = 0.0
    recompiles: int = 0
    peak_bytes: int = 0
    numbers: dict[str, float] = {}
    counters: dict[str, float | None] = {}
    disturbed: tuple[str, ...] = ()
    keys: dict[str, str] = {}
    environment: dict[str, Any] = {}

    @classmethod
    def of(cls, spec: TrialSpec, started: float, **found: Any) -> TrialRecord:
        """The record of a trial that was told `spec`, started at `started` and ends now."""
        return cls(
            arm=spec.arm.id,
            kind=spec.kind,
            pack=spec.pack,
            round=spec.round,
            attempt=spec.attempt,
            code=spec.code,
            method=spec.measure.method,
            started=started,
            ended=time.time(),
            **found,
        )

    @property
    def ns_per_unit(self) -> float:
        """The primary figure: time of the timed region divided by units done in it."""
        return self.region_ns / self.units


class Event(Row):
    """One line of a pack's progress."""

    time: float
    arm: str
    kind: Kind
    round: int | None
    outcome: Outcome
    seconds: float
    reason: str = ""
