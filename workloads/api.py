"""The contract between a workload and the pipelines, and nothing else.

A workload repeats an iteration and declares toggles that change how the iteration is computed. The pipelines
know workloads only through this module: they never branch on a workload's name.
"""

from __future__ import annotations

import dataclasses
import resource
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import FunctionType
from typing import Any, ClassVar, Literal, Protocol, Self

from perfsweep.workloads.declarations import (
    REPLAY,
    REPLAYED,
    Baseline,
    Check,
    Choices,
    Claim,
    Comparator,
    Device,
    Level,
    Levels,
    LevelValue,
    Numbers,
    Parity,
    Toggle,
    declaration_problems,
)
from perfsweep.workloads.errors import ConfigError, ContractError
from perfsweep.workloads.preloads import ALLOCATOR, MKL_VECTORS

__all__ = [
    "REPLAY",
    "REPLAYED",
    "Baseline",
    "Check",
    "Choices",
    "Claim",
    "Clock",
    "Comparator",
    "Context",
    "Device",
    "Evidence",
    "Level",
    "LevelValue",
    "Levels",
    "Numbers",
    "Parity",
    "Replayable",
    "Toggle",
    "Work",
    "Workload",
    "contract_problems",
]


@dataclass
class Evidence:
    """What was computed: named tensors (anything `numpy.asarray` takes) and named numbers.

    A number `sampled_share` below 1 says that only this share of the work was done, and times are marked as
    extrapolated. `parts` describes flat tensors by their names: the pieces that each is made of, with their
    lengths.
    """

    tensors: dict[str, Any] = field(default_factory=dict)
    numbers: dict[str, float] = field(default_factory=dict)
    parts: dict[str, dict[str, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Replayable:
    """A training of which one iteration can be replayed from a state that another arm reached.

    `parameters` are the tensors that `optimizer` updates, by name. `save` returns everything that the next
    iteration depends on (values, optimizer, own generators, place in the data), and `load` restores it.
    """

    parameters: Mapping[str, Any]
    optimizer: Any
    save: Callable[[], Mapping[str, Any]]
    load: Callable[[Mapping[str, Any]], None]


@dataclass(frozen=True)
class Work:
    """Formula cost of one unit.

    `products` is the type of its multiply-adds, with a rate in `perfsweep.workloads.peaks`: float64, float32,
    tf32 or half.
    """

    flops: float | None = None
    bytes: float | None = None
    products: str = "float32"


@dataclass(frozen=True)
class Context:
    """What the pipeline gives a workload for one trial.

    `log` takes one row of metrics per iteration; `cache_dir` is shared by the trials of a sweep,
    `scratch_dir` belongs to this trial; `deadline` is a `time.monotonic` value. This process is number `rank`
    of `world`, and on its node, number `node`, it is number `local_rank` of `local_world`; `master` is the
    address of node 0. A workload cannot see whether it is timed, so timed and checked code are the same.
    """

    device: Device
    scratch_dir: Path
    cache_dir: Path
    seed: int = 0
    rank: int = 0
    world: int = 1
    node: int = 0
    local_rank: int = 0
    local_world: int = 1
    master: str = "127.0.0.1"
    memory_budget: int | None = None
    log: Callable[[Mapping[str, float]], None] = lambda row: None
    deadline: float | None = None


class Clock(Protocol):
    """The part of the recorder that `step` may use."""

    def phase(self, name: str) -> AbstractContextManager[Any]:
        """Mark a named part of the iteration; one level of nesting, never inside compiled code."""
        ...


class NullClock:
    """The clock of iterations that are not measured: its marks do nothing."""

    @staticmethod
    def phase(name: str) -> AbstractContextManager[None]:
        """A mark that does nothing."""
        return nullcontext()


class Declaration:
    """What a workload declares, in fields that `Workload` explains: all that a plan needs.

    Subclasses are checked when the class is created.
    """

    Config: ClassVar[type]
    toggles: ClassVar[tuple[Toggle, ...]]
    on_request: ClassVar[tuple[Toggle, ...]] = (ALLOCATOR, MKL_VECTORS)
    claims: ClassVar[tuple[Claim, ...]] = ()
    checks: ClassVar[tuple[Check, ...]]
    shape: ClassVar[Literal["steps", "job"]] = "steps"
    unit: str = "example"
    title: ClassVar[str] = ""
    origin: ClassVar[str] = ""
    start: ClassVar[Literal["fork", "exec"]] = "fork"
    ranks: ClassVar[int] = 1
    own_device: ClassVar[bool] = False
    files: ClassVar[tuple[Path, ...]] = ()
    paths: ClassVar[tuple[str, ...]] = ()
    data_phases: ClassVar[tuple[str, ...]] = ("data",)
    extra_phases: ClassVar[tuple[str, ...]] = ()
    replaces: ClassVar[frozenset[str]] = frozenset()
    remarks: ClassVar[tuple[tuple[str, str], ...]] = ()
    cadence: int = 1
    cadence_is_known: ClassVar[bool] = True
    length: int | None = None

    def __init_subclass__(cls, *, contract: bool = False, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        problems = [] if contract else contract_problems(cls)
        if problems:
            raise ContractError(
                f"workload class {cls.__module__}:{cls.__qualname__} breaks the contract:"
                f" {'; '.join(problems)}"
            )

    @classmethod
    def configured(cls, config: Any) -> type[Self]:
        """The workload under a configuration: a subclass where toggles, files or ranks depend on it."""
        return cls

    @classmethod
    def planned(cls, config: Any) -> Any:
        """The configuration as it is planned, with values filled in that depend on the current folder."""
        return config

    @classmethod
    def toggles_named(cls, names: Container[str]) -> tuple[Toggle, ...]:
        """The workload's toggles, and the toggles `on_request` that a sweep names."""
        own = {toggle.name for toggle in cls.toggles}
        return (*cls.toggles, *(one for one in cls.on_request if one.name in names and one.name not in own))

    @classmethod
    def levels_of(cls, levels: Levels) -> dict[str, Level]:
        """The levels of an arm by toggle, as they are declared.

        Raises
        ------
        ConfigError
            A value is no level of its toggle.
        """
        toggles = {toggle.name: toggle for toggle in cls.toggles_named(levels)}
        return {name: toggles[name].level(value) for name, value in levels.items()}

    @classmethod
    def processes(cls, levels: Levels, device: Device) -> int:
        """Number of processes that form one trial of an arm on `device`."""
        return max([cls.ranks, *(level.processes(device) for level in cls.levels_of(levels).values())])

    @classmethod
    def needs_exec(cls, levels: Levels) -> bool:
        """Whether an arm needs settings, such as variables, before its process starts importing."""
        if cls.start == "exec" or cls.ranks > 1:
            return True
        chosen = cls.levels_of(levels).values()
        return any(level.env or level.ranks > 1 or level.per_gpu for level in chosen)


class Workload(Declaration, contract=True):
    """Something that repeats an iteration. Subclasses are checked when the class is created.

    ``steps``-shaped workloads (training) never end by themselves. A ``job`` (a fit, an evaluation) ends, and
    `reset` starts the next job in the same process. `cadence` is the number of iterations after which
    periodic work (saving, evaluation) repeats; timed regions are whole multiples of it. If it is unknown,
    evidence trials look for it in the iterations' times. `length` is the number of iterations of a whole
    training, if the configuration has it or the training has ended.

    `start` is exec for trials whose process must not have imported anything before. `ranks` processes form
    each trial, unless a level needs more. A workload that runs other programs has `own_device`: the node
    decides which GPUs they have, not the torch of this interpreter.

    `files` decide what is computed, in addition to the sources that the class's module imports. Fields of
    Config in `paths` name files or folders; a YAML file gives them relative to itself. Folders of sweeps
    begin with `title`, or else with the name of the workload. They belong to one `origin`: the file that
    identifies the workload, such as a script, if that is not the file of the class.

    In its `data_phases` a workload waits for its loader. Work in `extra_phases` is left out by some users, so
    results have times without it too. `replaces` names the modules in which levels replace functions.
    `remarks` are counters, each with a sentence that tables show if the counter is above zero in a baseline.
    """

    def setup(self, config: Any, levels: Levels, context: Context) -> None:
        """Build data, model and optimiser, and choose all code paths; recorded, but not timed."""
        raise ContractError(f"{type(self).__name__} does not define setup")

    def step(self, clock: Clock) -> None:
        """One iteration."""
        raise ContractError(f"{type(self).__name__} does not define step")

    def progress(self) -> float:
        """Units done since `setup` or the last `reset`."""
        raise ContractError(f"{type(self).__name__} does not define progress")

    def done(self) -> bool:
        """Whether a job has ended."""
        return False

    def reset(self) -> None:
        """Start the next job in the same process, from the same state as the first."""

    def prepare_evidence(self) -> None:
        """Called before the first step of untimed trials, to store what `evidence` needs from the start.

        Later steps must compute the same as without it.
        """

    def numbers(self) -> Mapping[str, float]:
        """Cheap figures of the results so far, or of the last job; called in every trial.

        They are compared between arms, and between timed and other trials, at equal iterations, by the check
        of their name or the rule of the level's class. Times and counts of work belong in `counters`.
        """
        return {}

    def evidence(self) -> Evidence:
        """What was computed; called in evidence trials only. `numbers` need not be repeated."""
        raise ContractError(f"{type(self).__name__} does not define evidence")

    def keep(self, folder: Path) -> None:
        """Write results into an empty folder: results, checkpoints, weights.

        Called with ``keep=FOLDER``, in a trial of its own; for a job once it is done.

        Raises
        ------
        ConfigError
            The workload has no results to save.
        """
        raise ConfigError(f"{type(self).__name__} has nothing to keep: it defines no keep()")

    def replayable(self) -> Replayable | None:
        """What parity needs to replay single iterations of a training; None: only whole runs are compared."""
        return None

    def counters(self) -> Mapping[str, float]:
        """Machine-independent counts since `setup`; every witness of a level is here or a generic counter.

        `idle_share` is the share of work for items that had ended already: reports mark baselines in which it
        is most of the work.
        """
        return {}

    def uncaptured(self) -> AbstractContextManager[Any]:
        """A context in which iterations run without replaying captured graphs.

        Counting trials use it, because they see operators but no replays. Only a workload that captures
        graphs itself needs it: graphs of `torch.compile` are seen without it.
        """
        return nullcontext()

    def work(self) -> Work:
        """Formula cost of one unit, where a formula exists."""
        return Work()

    def child_usage(self) -> resource.struct_rusage | None:
        """Resources that finished child processes have used for the workload since `setup`.

        Their CPU time and memory are then those of the trial; None: the work is done in this process.
        """
        return None

    def data_digest(self) -> str:
        """Identity of the data: records of different data are never compared."""
        return ""

    def close(self) -> None:
        """Release what would outlive the process: worker processes, writer threads, files."""


def contract_problems(cls: type[Declaration]) -> list[str]:
    """The mistakes in the declarations of the class `cls`, as phrases."""
    problems = []
    if not dataclasses.is_dataclass(getattr(cls, "Config", None)):
        problems.append("Config must be a dataclass")
    problems += [
        f"{name} must be a tuple"
        for name in ("toggles", "checks")
        if not isinstance(getattr(cls, name, None), tuple)
    ]
    if cls.shape not in ("steps", "job"):
        problems.append(f"shape is {cls.shape!r}, not 'steps' or 'job'")
    problems += _missing(cls) if issubclass(cls, Workload) else []
    problems += _hidden(cls, (FunctionType, classmethod))
    return problems or declaration_problems(cls.toggles, cls.claims, cls.checks)


def _missing(cls: type[Workload]) -> list[str]:
    methods = ("setup", "step", "progress", "evidence")
    missing = [f"{name}() is missing" for name in methods if getattr(cls, name) is getattr(Workload, name)]
    if cls.shape == "job" and (cls.done is Workload.done or cls.reset is Workload.reset):
        missing.append("a job needs done() and reset()")
    return missing


@contextmanager
def methods_in_sight(workload: Workload) -> Iterator[Callable[[], None]]:
    """Name the attribute that hides a method, instead of the `TypeError` that calling it raises.

    Yields
    ------
    a function that refuses such attributes at once

    Raises
    ------
    ContractError
        An attribute that is no function hides a method.
    """

    def refuse() -> None:
        if hidden := _hidden(workload, FunctionType):  # class methods are called on the class
            cls = type(workload)
            raise ContractError(f"{cls.__module__}:{cls.__qualname__}: {hidden[0]}. Rename the attribute.")

    try:
        yield refuse
    except TypeError:
        refuse()
        raise


def _hidden(holder: Workload | type[Declaration], kinds: type | tuple[type, ...]) -> list[str]:
    cls = holder if isinstance(holder, type) else type(holder)
    return [
        f"its attribute {name} hides the method of that name"
        for base in (Declaration, Workload)
        if issubclass(cls, base)
        for name, value in vars(base).items()
        if isinstance(value, kinds) and not name.startswith("_") and not callable(getattr(holder, name))
    ]
