"""Types of the configuration; the values live in `conf/`.

Hydra composes once; after that, arms are made by updating values, which costs microseconds.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING, DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from pipelines.config import slice_range, tracking
from pipelines.store.records import Measure
from slurm.dev.settings import Settings, default_root
from slurm.executors import EXECUTORS
from slurm.site import SiteProfile
from workloads.api import Parity, Workload
from workloads.errors import ConfigError

DEVELOPMENT = "dev"
"""Stands for the slurm.conf of the cluster that `make slurm-up` starts on this host."""


@dataclass
class MeasureConfig:
    """How trials measure."""

    rounds: int = 8  # pairs per effect; six decide one comparison, eight decide six
    iterations: int = 60  # timed iterations of a step-shaped workload, rounded up to its cadence
    jobs: int = 1  # timed jobs of a job-shaped workload, after one discarded job
    discard_s: float | None = None  # cut the discarded job off after so many seconds; null: it runs whole
    warmup_max: int = 400
    evidence_iterations: int = 24
    counting_iterations: int = 6
    threads: int = 1  # on CPU; more than one makes contention change signs
    timeout_s: float = 600.0
    margin: float = 0.01  # effects smaller than this are no difference
    seed: int = 0
    isolation: str = (
        "fresh"  # fresh: a process for each arm and round; resident: processes stay and take turns
    )
    turns: int = 5  # resident: rounds that one generation of processes lasts
    precision: float | None = None  # go on until every interval's half-width is under this, 0.01 being 1 %
    budget_s: float | None = None  # begin no round of a pack after this many seconds of trials
    rounds_max: int = 40  # most rounds where precision or budget_s decide
    repeats: int = 2  # rounds of a pack measured again because something disturbed them
    aa: bool = (
        False  # carry the first reference twice, and call no effect that is smaller than their difference
    )
    seeds: int = 5  # paired seeds of a stochastic level; three more where they leave it open
    memory_gib: float | None = (
        None  # memory that a trial may need, as if the device had no more; beyond it ends as oom
    )


@dataclass
class TrackingConfig:
    """What is published to W&B."""

    mode: str = "offline"  # offline, online or disabled
    project: str = "perfsweep"
    entity: str | None = None  # null: WANDB_ENTITY of the shell, else the account's default
    base_url: str | None = None  # null: WANDB_BASE_URL of the shell, else where the account was logged in to
    share: float = 0.02  # of a pack's time that publishing between rounds may take
    uploads: int = 4  # runs at once
    patience_s: float = 60.0  # for one run; a publisher that needs longer is given up


@dataclass
class ClusterConfig(SiteProfile):
    """Where packs run; the fields of `slurm.site.SiteProfile` say how a Slurm site is asked."""

    executor: str = (
        "local"  # slurm, local, inprocess; auto: slurm where one answers and we are not inside a job
    )
    slots: int | None = None  # packs at once; null: one for each GPU, or one on CPU
    arms_per_pack: int = 24


@dataclass
class DesignConfig:
    """How arms are chosen: see docs/concepts.md for each kind."""

    kind: str = MISSING
    toggles: list[str] | None = None  # restrict to these toggles
    levels: dict[str, list[Any]] = field(default_factory=dict)  # restrict to these levels
    best: dict[str, Any] = field(default_factory=dict)  # leave_one_out: the arm to leave out of
    steps: list[dict[str, Any]] = field(default_factory=list)  # chain: what each step adds
    arms: dict[str, dict[str, Any]] = field(default_factory=dict)  # arms: name -> levels
    reference: str | None = None  # null: the first reference
    resolution: int | None = (
        None  # fractional: 4 knows interactions in groups, 5 and 6 one by one; null: the fewest arms
    )


@dataclass
class SweepConfig:
    """A named sweep."""

    name: str = MISSING
    designs: list[DesignConfig] = field(default_factory=list)
    references: dict[str, dict[str, Any]] = field(default_factory=lambda: {"naive": {}})


@dataclass
class SweepCommand:
    """`perfsweep sweep`."""

    workload: Any = MISSING
    toggles: dict[str, Any] = field(default_factory=dict)
    axes: dict[str, Any] = field(default_factory=dict)
    measure: MeasureConfig = field(default_factory=MeasureConfig)
    tracking: TrackingConfig = field(default_factory=TrackingConfig)
    cluster: ClusterConfig = field(default_factory=ClusterConfig)
    sweep: SweepConfig = field(default_factory=SweepConfig)
    runs: str = "runs"
    name: str | None = None  # folder under `runs`; null: <workload>-<sweep>
    dry_run: bool = False
    retry: list[str] = field(default_factory=list)  # outcomes to measure anew: failed, oom, timeout


@dataclass
class RunCommand:
    """`perfsweep run`."""

    workload: Any = MISSING
    toggles: dict[str, Any] = field(default_factory=dict)
    measure: MeasureConfig = field(default_factory=MeasureConfig)
    runs: str = "runs"


@dataclass
class ProfileConfig:
    """What is profiled, and with which tools."""

    tool: str = "all"  # pyinstrument, torch, memory, roofline, dynamo; all: those that this device can use
    slice: str = "auto"  # step, job, first, or a range of iterations such as 10:40; auto: what suits the tool
    wait: int = 1  # iterations before the slice that torch.profiler does not watch
    warmup: int = 1  # and those it watches for nothing, since it is slow at first
    active: int = 3  # iterations of a slice that nobody has named, for all but pyinstrument
    repeats: int = 2  # the slice so often with the profiler and so often without, in turns
    interval_s: float = 0.001  # between two samples of pyinstrument
    hook: str = "on"  # the recorder of iterations and phases: on, off, or both one after the other
    debug_log: str = "off"  # logging at level DEBUG: on, off or both
    stacks: bool = False  # torch.profiler: the Python stack of each operator, at several times the cost
    top: int = 15  # rows of the tables on the terminal


@dataclass
class ProfileCommand:
    """`perfsweep profile`."""

    workload: Any = MISSING
    toggles: dict[str, Any] = field(default_factory=dict)
    measure: MeasureConfig = field(default_factory=MeasureConfig)
    tracking: TrackingConfig = field(default_factory=TrackingConfig)
    profile: ProfileConfig = field(default_factory=ProfileConfig)
    runs: str = "runs"


@dataclass
class TuneConfig:
    """What `perfsweep tune` may change, and what it must keep to."""

    toggles: list[str] = field(default_factory=list)  # up to eight
    levels: dict[str, list[Any]] = field(default_factory=dict)  # of these toggles only these levels
    ladder: str | None = None  # one toggle of sizes, climbed first
    sizes: list[int] = field(default_factory=list)  # of the ladder; empty: powers of two
    reference: dict[str, Any] = field(
        default_factory=dict
    )  # the arm to start from and to be measured against
    iterations: float | None = (
        None  # for which set-up and compiling are to pay; null: endless, time per unit alone counts
    )
    memory_gib: float | None = None  # that an arm may need; null: what there is
    compile_s: float | None = None  # that an arm may compile for, with nothing compiled yet; null: any
    parity: str = "tolerance"  # the loosest class of results allowed: exact, tolerance or stochastic
    rounds: int = 3  # of each step of the search; measure.rounds are those of the comparison at the end


@dataclass
class TuneCommand(SweepCommand):
    """`perfsweep tune`."""

    tune: TuneConfig = field(default_factory=TuneConfig)


@dataclass
class FrontierConfig:
    """A ladder for `perfsweep frontier`."""

    toggle: str | None = None  # null: the only ladder of the workload
    sizes: list[int] = field(default_factory=list)  # empty: powers of two
    memory_gib: float | None = None  # that a size may need; null: what the device has
    measurements: int = 10  # sizes measured at most
    rounds: int = 3  # of each size


@dataclass
class FrontierCommand(SweepCommand):
    """`perfsweep frontier`."""

    frontier: FrontierConfig = field(default_factory=FrontierConfig)


@dataclass
class DoctorCommand:
    """`perfsweep doctor`."""

    cluster: ClusterConfig = field(default_factory=ClusterConfig)


_COMMANDS: dict[str, type[Any]] = {
    "sweep": SweepCommand,
    "run": RunCommand,
    "profile": ProfileCommand,
    "doctor": DoctorCommand,
    "tune": TuneCommand,
    "frontier": FrontierCommand,
}


def register() -> None:
    """Make the types known to Hydra, under the names that the files in `conf/` extend."""
    for name, node in _COMMANDS.items():
        ConfigStore.instance().store(name=f"{name}_command", node=node)


def parts(command: str) -> list[str]:
    """The top-level names of a command's configuration."""
    return [one.name for one in dataclasses.fields(_COMMANDS[command])]


def typed(cfg: DictConfig, command: type[Any]) -> Any:
    """The composed configuration as its dataclass, checked.

    Raises
    ------
    ConfigError
        A value is missing or out of range; the message names the field.
    """
    if unknown := sorted(map(str, set(cfg) - {f.name for f in dataclasses.fields(command)})):
        known = ", ".join(f.name for f in dataclasses.fields(command))
        raise ConfigError(f"{unknown[0]} is unknown; choose from: {known}")
    try:
        # Hydra applies overrides to typed nodes; merging again types what plain YAML groups brought in.
        values: Any = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(command), cfg))
    except OmegaConfBaseException as error:
        raise ConfigError(_first_line(error)) from error
    if isinstance(values, SweepCommand | RunCommand | ProfileCommand):
        _check_measure(values.measure)
    if isinstance(values, ProfileCommand):
        tracking.check(values.tracking)
        _check_profile(values.profile)
    if isinstance(values, SweepCommand | DoctorCommand):
        _check_cluster(values.cluster)
        if values.cluster.slurm_conf == DEVELOPMENT:
            values.cluster.slurm_conf = str(Settings(default_root()).conf)
    if isinstance(values, TuneCommand):
        _check_choice("tune.parity", values.tune.parity, tuple(parity.value for parity in Parity))
        _check_limits("tune", values.tune, ("iterations", "memory_gib", "compile_s"))
    if isinstance(values, FrontierCommand):
        _check_limits("frontier", values.frontier, ("memory_gib",))
        _check_least("frontier.measurements", values.frontier.measurements, 2)
    if isinstance(values, SweepCommand):
        tracking.check(values.tracking)
        for outcome in values.retry:
            _check_choice("retry", outcome, ("failed", "oom", "timeout", "unsupported"))
    return values


def workload_config(cls: type[Workload], given: dict[str, Any]) -> Any:
    """The workload's own configuration, typed by its dataclass.

    Raises
    ------
    ConfigError
        A field does not exist or has a value of the wrong type; the message names it.
    """
    known = {f.name for f in dataclasses.fields(cls.Config)}
    if unknown := sorted(set(given) - known):
        raise ConfigError(
            f"workload.{unknown[0]} does not exist; {cls.__name__} has: {', '.join(sorted(known))}"
        )
    try:
        return OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(cls.Config), given))
    except OmegaConfBaseException as error:
        field_name = getattr(error, "full_key", "") or "?"
        if "ListConfig" in str(error) and isinstance(value := given.get(field_name), str | int | float):
            raise ConfigError(
                f"workload.{field_name}={value} is no list: write workload.{field_name}=[{value}]"
            ) from error
        raise ConfigError(f"workload.{field_name}: {_first_line(error)}") from error


def as_measure(config: MeasureConfig) -> Measure:
    """The part of the measuring configuration that trials need."""
    return Measure(**{name: getattr(config, name) for name in Measure.model_fields})


def _check_cluster(cluster: ClusterConfig) -> None:
    _check_choice("cluster.executor", cluster.executor, ("auto", *EXECUTORS))
    cluster.check()
    if cluster.slots is not None:
        _check_least("cluster.slots", cluster.slots, 1)
    _check_least("cluster.arms_per_pack", cluster.arms_per_pack, 2)


def _check_measure(measure: MeasureConfig) -> None:
    lowest = {
        "rounds": 1,
        "iterations": 1,
        "jobs": 1,
        "warmup_max": 5,
        "evidence_iterations": 1,
        "counting_iterations": 1,
        "threads": 1,
        "turns": 1,
        "rounds_max": 1,
        "repeats": 0,
        "seeds": 3,
    }
    for name, low in lowest.items():
        _check_least(f"measure.{name}", getattr(measure, name), low)
    for name in ("timeout_s", "margin", "precision", "budget_s", "discard_s", "memory_gib"):
        value = getattr(measure, name)
        if value is not None and not value > 0:
            raise ConfigError(f"measure.{name}={value} must be above zero")
    _check_choice("measure.isolation", measure.isolation, ("fresh", "resident"))


def _check_profile(profile: ProfileConfig) -> None:
    _check_choice(
        "profile.tool", profile.tool, ("pyinstrument", "torch", "memory", "roofline", "dynamo", "all")
    )
    for name in ("hook", "debug_log"):
        _check_choice(f"profile.{name}", getattr(profile, name), ("on", "off", "both"))
    for name, low in {"wait": 0, "warmup": 0, "active": 1, "repeats": 1, "top": 1}.items():
        _check_least(f"profile.{name}", getattr(profile, name), low)
    if not profile.interval_s > 0:
        raise ConfigError(f"profile.interval_s={profile.interval_s} must be above zero")
    slice_range.parse(profile.slice)


def _check_limits(name: str, given: TuneConfig | FrontierConfig, limits: tuple[str, ...]) -> None:
    _check_least(f"{name}.rounds", given.rounds, 2)
    for limit in limits:
        value = getattr(given, limit)
        if value is not None and not value > 0:
            raise ConfigError(f"{name}.{limit}={value} must be above zero; leave it out for no limit")


def _check_least(name: str, value: int, low: int) -> None:
    if value < low:
        raise ConfigError(f"{name}={value} must be at least {low}")


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ConfigError(f"{name}={value} is unknown; choose from: {', '.join(choices)}")


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]
