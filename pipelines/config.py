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

from pipelines.records import Measure
from workloads.api import Workload
from workloads.errors import ConfigError


@dataclass
class MeasureConfig:
    """How trials measure."""

    rounds: int = 8  # pairs per effect; six decide one comparison, eight decide six
    iterations: int = 60  # timed iterations of a step-shaped workload, rounded up to its cadence
    jobs: int = 1  # timed jobs of a job-shaped workload, after one discarded job
    warmup_max: int = 400
    evidence_iterations: int = 24
    counting_iterations: int = 6
    threads: int = 1  # on CPU; more than one makes contention change signs
    timeout_s: float = 600.0
    margin: float = 0.01  # effects smaller than this are no difference
    seed: int = 0


@dataclass
class TrackingConfig:
    """What is published to W&B."""

    mode: str = "offline"  # offline or disabled
    project: str = "perfsweep"
    entity: str | None = None


@dataclass
class ClusterConfig:
    """Where packs run."""

    executor: str = "local"  # local or inprocess
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


def register() -> None:
    """Make the types known to Hydra, under the names that the files in `conf/` extend."""
    store = ConfigStore.instance()
    store.store(name="sweep_command", node=SweepCommand)
    store.store(name="run_command", node=RunCommand)


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
    _check_measure(values.measure)
    if isinstance(values, SweepCommand):
        _check_choice("tracking.mode", values.tracking.mode, ("offline", "disabled"))
        _check_choice("cluster.executor", values.cluster.executor, ("local", "inprocess"))
        if values.cluster.slots is not None:
            _check_least("cluster.slots", values.cluster.slots, 1)
        _check_least("cluster.arms_per_pack", values.cluster.arms_per_pack, 2)
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
        raise ConfigError(f"workload.{unknown[0]} does not exist; {cls.__name__} has: {', '.join(sorted(known))}")
    try:
        return OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(cls.Config), given))
    except OmegaConfBaseException as error:
        field_name = getattr(error, "full_key", "") or "?"
        raise ConfigError(f"workload.{field_name}: {_first_line(error)}") from error


def as_measure(config: MeasureConfig) -> Measure:
    """The part of the measuring configuration that trials need."""
    return Measure(**{name: getattr(config, name) for name in Measure.model_fields})


def _check_measure(measure: MeasureConfig) -> None:
    lowest = {
        "rounds": 1,
        "iterations": 1,
        "jobs": 1,
        "warmup_max": 5,
        "evidence_iterations": 1,
        "counting_iterations": 1,
        "threads": 1,
    }
    for name, low in lowest.items():
        _check_least(f"measure.{name}", getattr(measure, name), low)
    for name in ("timeout_s", "margin"):
        if not getattr(measure, name) > 0:
            raise ConfigError(f"measure.{name}={getattr(measure, name)} must be above zero")


def _check_least(name: str, value: int, low: int) -> None:
    if value < low:
        raise ConfigError(f"{name}={value} must be at least {low}")


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ConfigError(f"{name}={value} is unknown; choose from: {', '.join(choices)}")


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]
