"""Schemas of a sweep as it is planned: the values that travel between stages.

What a workload declares is written with the plan, so that judging records needs no import of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, Self

from pydantic import BaseModel, ConfigDict, Field

from perfsweep.fields import default_of
from perfsweep.pipelines.store.options import MeasureConfig, ReportConfig, TrackingConfig
from perfsweep.pipelines.store.trial_schema import (
    IN_A_PATH,
    SCHEMA,
    Arm,
    Keep,
    Kind,
    Outcome,
    TrialRecord,
    TrialSpec,
)
from perfsweep.workloads.api import Declaration
from perfsweep.workloads.declarations import Check, Level, Parity
from perfsweep.workloads.toggles import on_gpu

PLACEBO = "placebo"
"""Design of the effects that compare an arm with itself."""


IDEAL_LOADER = "ideal loader"
"""Design of the effect of a loader that never waits, which is no choice: its results are not compared."""


class StoredValue(BaseModel):
    """A value that travels between stages: frozen, and strict about unknown fields; NaN stays NaN."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")


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

    id: str = Field(pattern=IN_A_PATH)
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
    """What judging reads of a level: see `perfsweep.workloads.declarations.Level`."""

    value: str | int | float
    parity: Parity = Parity.EXACT
    bounds: dict[str, float] = {}
    witness: str | None = None
    in_code: str = ""
    on_gpu: str = ""


class Declared(StoredValue):
    """What a workload declares, as far as records are judged by it: reading them does not import it.

    Attributes
    ----------
    levels : by toggle, the levels that any arm has
    loosened : by arm and toggle, the class of a level where the arm's other levels change it
    claims : whether reports make claims about this configuration; the claims themselves are in the workload
    options : fields of the configuration off their default
    data_phases : phases in which it waits for its loader
    extra_phases : phases whose work some users leave out
    remarks : counters, each with a sentence for readers of its tables where it is above zero in a baseline
    """

    unit: str
    shape: str
    checks: tuple[Check, ...]
    levels: dict[str, tuple[DeclaredLevel, ...]]
    loosened: dict[str, dict[str, Parity]] = {}
    claims: bool = False
    options: dict[str, Any] = {}
    data_phases: tuple[str, ...] = ("data",)
    extra_phases: tuple[str, ...] = ()
    remarks: tuple[tuple[str, str], ...] = ()

    @property
    def in_code(self) -> dict[str, dict[str, str]]:
        """By toggle and level as text, what to change in a program, where a level says it."""
        return {
            name: {str(level.value): level.in_code for level in levels if level.in_code}
            for name, levels in self.levels.items()
        }

    def levels_of(self, arm: Arm) -> dict[str, DeclaredLevel]:
        """Look up the levels of an arm by toggle, each in its class with the others."""
        own = {name: self._level(name, value) for name, value in arm.levels.items()}
        loosened = self.loosened.get(arm.id, {})
        return own | {name: own[name].model_copy(update={"parity": loosened[name]}) for name in loosened}

    def on_gpu(self, arm: Arm) -> str:
        """Whether all levels of an arm act on a GPU: `yes`, `as graphs`, `CPU only`; empty: not known."""
        words = {self._limited.get((name, str(value)), "yes") for name, value in arm.levels.items()}
        return next((word for word in ("", "CPU only", "as graphs") if word in words), "yes")

    @cached_property
    def _limited(self) -> dict[tuple[str, str], str]:
        """What is not `yes`, by toggle and level: few of thousands of arms' levels."""
        every = ((name, level) for name, levels in self.levels.items() for level in levels)
        return {(name, str(one.value)): one.on_gpu for name, one in every if one.on_gpu != "yes"}

    def _level(self, toggle: str, value: str | int | float) -> DeclaredLevel:
        return next(level for level in self.levels[toggle] if level.value == value)


class Environment(StoredValue):
    """An interpreter with its packages that some arms of a sweep run in.

    Attributes
    ----------
    interpreter, prefix : the executable, and the folder of the environment
    python, abi : version of Python, and what its compiled modules are built for
    installed : digest of what trials find installed, see `perfsweep.pipelines.trial.identity`
    packages : version of each installed package by its name, torch's own name of its build among them
    keys : comparison keys that its trials have in place of this installation's
    """

    interpreter: str
    prefix: str
    python: str
    abi: str
    installed: str = ""
    packages: dict[str, str] = {}
    keys: dict[str, str] = {}


class Version(StoredValue):
    """What some arms of a sweep run: code of the user's, and the environment that it runs in.

    Attributes
    ----------
    levels : by which arms choose it, by the toggle that the sweep provides
    digest : names it within the sweep
    code : digest of the code that the workload consists of, and of what measures
    config : the workload's, with the defaults that this code has
    repository : root of the checkout that the files belong to; empty where the sweep's own code runs, or a
        patch of it
    commit : full hash; None for the state of the checkout
    sources : digest of all code files of the version, see `perfsweep.pipelines.versions.tree`; empty as
    `repository` environment : None where this installation runs it
    """

    levels: dict[str, str]
    digest: str
    code: str
    config: dict[str, Any]
    repository: str = ""
    commit: str | None = None
    sources: str = ""
    environment: Environment | None = None

    @property
    def installed(self) -> str:
        """What its trials must find installed; empty where that is not held."""
        return self.environment.installed if self.environment else ""

    @property
    def name(self) -> str:
        """The name that users read."""
        return ", ".join(f"{toggle}={level}" for toggle, level in self.levels.items())


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
    declared: Declared
    sources: tuple[str, ...] = ()  # the user's files that jobs run copies of
    versions: tuple[Version, ...] = ()  # that arms differ by
    tracking: TrackingConfig = TrackingConfig()
    report: ReportConfig = ReportConfig()
    price: str | None = None  # of the cluster, with its unit
    keep: Keep | None = None
    parts: dict[str, tuple[str, str]] = {}  # steps from one reference to another that gains are told apart by
    nodes: int = 1  # of each pack
    ntasks_per_node: int | None = None  # ranks on each; None: spread evenly

    @property
    def columns(self) -> tuple[str, ...]:
        """Name what the report shows next to time: what was chosen, then what was measured on request."""
        own = {"stall": self.measure.stall}
        own |= dict.fromkeys(("target", "target_steps"), self.measure.target is not None)
        return (*self.report.columns, *(name for name, measured in own.items() if measured))

    @property
    def placement(self) -> str:
        """How ranks lie on nodes; empty where all lie on one."""
        each = f" x {self.ntasks_per_node}" if self.ntasks_per_node else ""
        return f"{self.nodes} nodes{each}" if self.nodes > 1 else ""

    def ranks_per_node(self, world: int) -> int:
        """Count the ranks of a trial of `world` on each node that it fills."""
        return min(world, self.ntasks_per_node or math.ceil(world / self.nodes))

    def version_of(self, arm: Arm) -> Version | None:
        """Look up the code that an arm runs; None where all arms run the same."""
        return next((one for one in self.versions if one.digest == arm.version), None)

    def code_of(self, arm: Arm) -> str:
        """Look up the digest of the code that an arm's trials check themselves against."""
        version = self.version_of(arm)
        return version.code if version else self.code

    def keys_of(self, arm: Arm) -> dict[str, str]:
        """Look up the comparison keys that an arm's environment decides."""
        version = self.version_of(arm)
        return version.environment.keys if version and version.environment else {}

    @property
    def factors(self) -> frozenset[str]:
        """Comparison keys that arms differ by: what the sweep compares, and no reason not to."""
        return frozenset(key for one in self.versions if one.environment for key in one.environment.keys)

    def workload_levels(self, arm: Arm) -> dict[str, str | int | float]:
        """Look up the levels of the toggles that the workload, and not the sweep, declares."""
        provided = {toggle for version in self.versions for toggle in version.levels}
        return {name: value for name, value in arm.levels.items() if name not in provided}

    def trial_spec(self, arm: Arm, kind: Kind, pack: str, cache_dir: Path, **own: Any) -> TrialSpec:
        """Specify a trial; `own` are fields that the sweep has otherwise or not at all.

        A trial knows nothing of versions: it is given the levels that the workload in its code declares.
        """
        version = self.version_of(arm)
        shared = {
            "sweep": self.name,
            "workload": self.workload,
            "config": version.config if version else self.config,
            "arm": replace(arm, levels=arm.own) if version else arm,
            "kind": kind,
            "pack": pack,
            "round": None,
            "attempt": 0,
            "measure": self.measure,
            "code": self.code_of(arm),
            "cache_dir": str(cache_dir.absolute()),
            "placement": self.placement,
            "installed": version.installed if version else "",
        }
        return TrialSpec(**{**shared, **own})


class Manifest(StoredValue):
    """The plan of a sweep as data."""

    sweep: Sweep
    arms: tuple[Arm, ...]
    effects: tuple[Effect, ...]
    packs: tuple[Pack, ...]
    refused: tuple[Refused, ...] = ()

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Copy the manifest, without what was looked up in this one."""
        copy = super().model_copy(update=update, deep=deep)
        for found in ("_arms", "_packs", "arm_names"):
            vars(copy).pop(found, None)
        return copy

    def measures_the_same(self, other: Manifest) -> bool:
        """Whether another plan differs in nothing but what reports show, and the price that they count."""
        shown = {"report": other.sweep.report, "price": other.sweep.price, "parts": other.sweep.parts}
        ours = self.sweep.model_copy(update=shown)
        return self.model_copy(update={"sweep": ours}) == other

    def arm(self, arm_id: str) -> Arm:
        """Look up an arm."""
        return self._arms[arm_id]

    def pack(self, pack_id: str) -> Pack:
        """Look up a pack."""
        return self._packs[pack_id]

    @cached_property
    def arm_names(self) -> dict[str, str]:
        """Arm ids with the name that the sweep gave them, else the label made of their levels."""
        listed = {effect.pairs[0][0]: effect.toggle for effect in self.effects if effect.design == "arms"}
        references = {arm: name for name, arm in self.sweep.references.items()}
        return {arm.id: references.get(arm.id) or listed.get(arm.id) or arm.label for arm in self.arms}

    @cached_property
    def _arms(self) -> dict[str, Arm]:
        return {arm.id: arm for arm in self.arms}

    @cached_property
    def _packs(self) -> dict[str, Pack]:
        return {pack.id: pack for pack in self.packs}


class Event(StoredValue):
    """One line of a pack's progress; a `final` outcome is the last that is heard of its arm."""

    time: float
    arm: str
    kind: Kind
    round: int | None
    outcome: Outcome
    seconds: float
    reason: str = ""
    final: bool = False


def declare(cls: type[Declaration], config: Any, arms: Iterable[Arm]) -> Declared:
    """Write down what a workload under a configuration declares about some arms."""
    levels: dict[str, dict[str, DeclaredLevel]] = {}
    loosened: dict[str, dict[str, Parity]] = {}
    for arm in arms:
        for name, level in cls.levels_of(arm.levels).items():
            levels.setdefault(name, {})[str(level.value)] = _as_data(level)
            if (looser := level.parity_with(config, arm.levels)) is not level.parity:
                loosened.setdefault(arm.id, {})[name] = looser
    return Declared(
        unit=cls.unit,
        shape=cls.shape,
        checks=cls.checks,
        levels={name: tuple(every.values()) for name, every in levels.items()},
        loosened=loosened,
        data_phases=cls.data_phases,
        extra_phases=cls.extra_phases,
        remarks=cls.remarks,
        claims=any(claim.speaks_of(config) for claim in cls.claims),
        options=_options(config),
    )


def _options(config: Any) -> dict[str, Any]:
    """Fields of a workload's configuration that are not at their default."""
    values = {one.name: (getattr(config, one.name), default_of(one)) for one in fields(config)}
    return {name: value for name, (value, usual) in values.items() if value not in (usual, None)}


def _as_data(level: Level) -> DeclaredLevel:
    return DeclaredLevel(
        value=level.value,
        parity=level.parity,
        bounds=dict(level.bounds),
        witness=level.witness,
        in_code=level.in_code.replace("{value}", str(level.value)),
        on_gpu=on_gpu(level),
    )


class _Trial(Protocol):
    @property
    def record(self) -> TrialRecord: ...


def declared_by(manifest: Manifest, trials: Iterable[_Trial] = ()) -> Declared:
    """Read what a sweep's workload declares.

    Of `trials` the first whose record names a unit says what was counted: some workloads see it as they run.
    """
    declared = manifest.sweep.declared
    seen = next((one.record.unit for one in trials if one.record.unit), declared.unit)
    return declared.model_copy(update={"unit": seen})
