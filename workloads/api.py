"""The contract between a workload and the pipelines, and nothing else.

A workload repeats an iteration and declares the toggles that change how. The pipelines know workloads
only through this module: they never branch on a workload's name.
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

from perfsweep.workloads.contract import declaration_problems
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
    extrapolated. `parts` names the pieces, with their lengths, that flat tensors called like its keys are
    made of.
    """

    tensors: dict[str, Any] = field(default_factory=dict)
    numbers: dict[str, float] = field(default_factory=dict)
    parts: dict[str, dict[str, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Replayable:
    """A training of which one iteration can be replayed from a state that another arm reached.

    `parameters` are what `optimizer` updates, by name; `save` gives everything the next iteration starts from
    (values, optimizer, generators of its own, place in the data), and `load` goes on from there.
    """

    parameters: Mapping[str, Any]
    optimizer: Any
    save: Callable[[], Mapping[str, Any]]
    load: Callable[[Mapping[str, Any]], None]


@dataclass(frozen=True)
class Work:
    """Formula cost of one unit.

    `products` is the type of its multiply-adds, as `perfsweep.workloads.peaks` lists rates: float64, float32,
    tf32 or half.
    """

    flops: float | None = None
    bytes: float | None = None
    products: str = "float32"


@dataclass(frozen=True)
class Context:
    """What the pipeline hands a workload for one trial.

    `log` takes one row of metrics per iteration; `cache_dir` is shared by the trials of a sweep,
    `scratch_dir` belongs to this trial; `deadline` is a `time.monotonic` value. Of `world` processes this is
    number `rank`, on node number `node` of the trial number `local_rank` of `local_world`; `master` is the
    address of node 0. Nothing says whether the trial is timed: what is timed must be what is checked.
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
    """What `step` may use of the recorder."""

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
        """The configuration as it is planned: whatever depends on where the command was typed, filled in."""
        return config

    @classmethod
    def toggles_named(cls, names: Container[str]) -> tuple[Toggle, ...]:
        """The workload's toggles, and those `on_request` that a sweep names."""
        own = {toggle.name for toggle in cls.toggles}
        return (*cls.toggles, *(one for one in cls.on_request if one.name in names and one.name not in own))

    @classmethod
    def levels_of(cls, levels: Levels) -> dict[str, Level]:
        """The levels of an arm by toggle, as they are declared.

        Raises
        ------
        ConfigError
            One of them is no level of its toggle.
        """
        toggles = {toggle.name: toggle for toggle in cls.toggles_named(levels)}
        return {name: toggles[name].level(value) for name, value in levels.items()}

    @classmethod
    def processes(cls, levels: Levels, device: Device) -> int:
        """Number of processes that form one trial of an arm on `device`."""
        return max([cls.ranks, *(level.processes(device) for level in cls.levels_of(levels).values())])

    @classmethod
    def needs_exec(cls, levels: Levels) -> bool:
        """Whether something of an arm must be known before its process starts importing."""
        if cls.start == "exec" or cls.ranks > 1:
            return True
        chosen = cls.levels_of(levels).values()
        return any(level.env or level.ranks > 1 or level.per_gpu for level in chosen)


class Workload(Declaration, contract=True):
    """Something that repeats an iteration. Subclasses are checked when the class is created.

    ``steps``-shaped workloads (training) never end by themselves; a ``job`` (a fit, an evaluation) ends, and
    `reset` starts the next one in the same process. `cadence` is the number of iterations after which
    periodic work (saving, evaluation) repeats; timed regions are whole multiples of it. Where it is not
    known, evidence trials look for it in the iterations' times. `length` are the iterations of a whole
    training, where its configuration has any, or where it has come to its end. Trials that must be
    alone before anything is imported `start` by exec; `ranks` processes form each trial, where no level asks
    for more; `files` decide what is computed, next to the sources that the class's module imports. Fields of
    Config in `paths` name files or folders: a YAML gives them relative to its own. In its `data_phases` a
    workload waits for its loader; work in `extra_phases` is what some users leave out, so that answers give
    times without it too. `replaces` names the modules in which levels put functions in the place of
    others. Of its `remarks`, each a counter and a sentence, tables say those whose counter is above zero in a
    baseline. One that works in programs of its own has its `own_device`: whether these have the GPUs of a
    job is for the node to say, and not for the torch of this interpreter. Folders of sweeps begin with
    `title`, or with the name it was asked for by, and belong to one `origin`: where another file than the
    class's tells workloads apart, such as a script, that file.
    """

    def setup(self, config: Any, levels: Levels, context: Context) -> None:
        """Build data, model and optimiser: recorded, not timed. All choices between paths are made here."""
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
        """Remember from the start what `evidence` needs, before the first step of trials that are not timed.

        What later steps compute must not depend on it.
        """

    def numbers(self) -> Mapping[str, float]:
        """Cheap figures of the results so far, of a job those of the last one: asked in every trial.

        They are compared between arms and between timed and other trials at equal iterations, by the check
        of their name or the rule of the level's class. Times and counts of work are none: see `counters`.
        """
        return {}

    def evidence(self) -> Evidence:
        """What was computed, in evidence trials only; `numbers` need not be repeated."""
        raise ContractError(f"{type(self).__name__} does not define evidence")

    def keep(self, folder: Path) -> None:
        """Write results into an empty folder: results, checkpoints, weights.

        Asked where ``keep=FOLDER`` is given, in a trial of its own, of a job once it is done.

        Raises
        ------
        ConfigError
            There is nothing of use to anybody else.
        """
        raise ConfigError(f"{type(self).__name__} has nothing to keep: it defines no keep()")

    def replayable(self) -> Replayable | None:
        """What parity needs to replay single iterations of a training; None: it compares whole runs only."""
        return None

    def counters(self) -> Mapping[str, float]:
        """Machine-independent counts since `setup`; every witness of a level is here or a generic counter.

        A count `idle_share` is the share of work that was for what had ended already: reports mark baselines
        that do most of theirs so.
        """
        return {}

    def uncaptured(self) -> AbstractContextManager[Any]:
        """While entered, iterations run as they are written where graphs of them would be replayed.

        Of counting trials, which see operators and no replays. For a workload that captures graphs itself;
        what `torch.compile` captures is seen without it.
        """
        return nullcontext()

    def work(self) -> Work:
        """Formula cost of one unit, where a formula exists."""
        return Work()

    def child_usage(self) -> resource.struct_rusage | None:
        """What processes have used since `setup` that do the workload's work and that it has waited for.

        Their CPU time and memory then are the trial's; None: the work is done in this process.
        """
        return None

    def data_digest(self) -> str:
        """Identity of the data: records of different data are never compared."""
        return ""

    def close(self) -> None:
        """Release what outlives the process otherwise: worker processes, writer threads, files."""


def contract_problems(cls: type[Declaration]) -> list[str]:
    """Everything in the class `cls` that cannot be meant, as phrases."""
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
    """Name the attribute that hides a method, in place of the `TypeError` that calling it raises.

    Yields
    ------
    refuses such attributes at once

    Raises
    ------
    ContractError
        The workload has one. A function may take the place of a method.
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
