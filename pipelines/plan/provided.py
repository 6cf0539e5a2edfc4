"""Toggles that the sweep provides, and not the workload: what trials run, such as a version of the code.

A workload never sees their levels. Each level stands for code that is looked at in a process of its own
before anything is planned on it, as the workload may declare other toggles there, or not work at all.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.config.types import SweepCommand
from pipelines.plan import version_look
from pipelines.plan.arms import Space
from pipelines.plan.designs import Assignment, PlannedEffect, Refusal
from pipelines.plan.version_look import Answer, Question, arm_key
from pipelines.store.records import Arm, Version
from pipelines.trial.identity import arm_id
from pipelines.versions import tree
from pipelines.versions.repository import Repository
from pipelines.versions.tree import Tree
from workloads import registry
from workloads.api import Device, Level, Toggle, Workload
from workloads.errors import ConfigError

LOOKS_AT_ONCE = 4


class SameCode(ConfigError):
    """Everything that a sweep was to compare is one and the same code."""


class CannotRun(ConfigError):
    """A version has not got the workload, or cannot run it."""


@dataclass(frozen=True)
class Provided:
    """The toggle that a sweep provides, with the code behind each of its levels."""

    toggle: Toggle
    trees: Mapping[str, Tree]

    def onto(self, cls: type[Workload]) -> type[Workload]:
        """The workload with the toggle among its own, for planning alone."""
        names = {"__module__": cls.__module__, "__qualname__": cls.__qualname__}
        return type(cls.__name__, (cls,), {**names, "toggles": (self.toggle, *cls.toggles)})

    def level_of(self, levels: Mapping[str, Any]) -> str:
        """The level of the toggle in an arm."""
        return str(levels[self.toggle.name])


def find_provided(cls: type[Workload], command: SweepCommand) -> Provided | None:
    """Read the code of all versions that a sweep names; a workload's own toggle of the name comes first.

    None where it names none.

    Raises
    ------
    ConfigError
        A version is unknown, or the workload has none.
    """
    own = {toggle.name for toggle in (*cls.toggles, *cls.on_request)}
    for name, make in PROVIDERS.items():
        values = list(dict.fromkeys(_values_of(name, [command.axes, _parts(command)])))
        if values and name not in own:
            return make(cls, name, values)
    return None


def _parts(command: SweepCommand) -> list[Any]:
    return [dataclasses.asdict(command.sweep), dict(command.toggles)]


def _values_of(name: str, value: Any) -> Iterator[Any]:
    """All levels that a configuration gives to a toggle, in its order."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if key == name:
                yield from inner if isinstance(inner, Sequence) and not isinstance(inner, str) else [inner]
            else:
                yield from _values_of(name, inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _values_of(name, inner)


def commits(cls: type[Workload], name: str, values: Sequence[Any]) -> Provided:
    """The toggle whose levels are commits of the repository that the workload's file lies in."""
    if unread := [value for value in values if not isinstance(value, str)]:
        raise ConfigError(
            f"axes.{name}={unread[0]}: a hash that reads as a number must be quoted:"
            f" \"axes.{name}=[main,'1234567']\""
        )
    if len(values) < 2:
        raise ConfigError(
            f"axes.{name} names one version; name the base first: axes.{name}=[main,{values[0]}]"
        )
    file = workload_file(cls)
    repository = Repository.of(file)
    try:
        trees = {value: tree.read(repository, value, registry.from_outside(cls)) for value in values}
    except ConfigError as error:
        raise ConfigError(f"axes.{name}: {error}") from error
    lacking = [value for value, one in trees.items() if file not in one.files]
    if lacking:
        place = file.relative_to(repository.root)
        raise CannotRun(
            f"axes.{name}: {', '.join(lacking)} has no {place}; name commits that have the workload"
        )
    levels = tuple(Level(value) for value in values)
    toggle = Toggle(name, levels, "the user's code at a commit, or as the checkout has it now")
    return Provided(toggle, trees)


PROVIDERS: dict[str, Callable[[type[Workload], str, Sequence[Any]], Provided]] = {"commit": commits}
"""Toggles that any sweep may name, by their names."""


def workload_file(cls: type[Workload]) -> Path:
    """The user's file that a workload is: its script, or the module of its class.

    Raises
    ------
    ConfigError
        It is none of the user's.
    """
    file = Path(cls.origin or registry.origin(cls).rpartition(":")[0])
    if file.suffix != ".py" or file not in {one.resolve() for one in registry.from_outside(cls)}:
        raise ConfigError(
            f"{cls.__name__} is no Python code of your own, so it has no versions: they are of a script,"
            " or of a workload class, in a git repository"
        )
    return file


class Cast:
    """Gives arms of a sweep with versions their code, once every version was looked at."""

    def __init__(
        self, provided: Provided, space: Space, cls: type[Workload], command: SweepCommand, device: Device
    ) -> None:
        self._provided, self._space, self._cls = provided, space, cls
        self._command, self._device = command, device
        self._answers: dict[str, Answer] = {}

    def look(self, every: Sequence[Assignment]) -> None:
        """Ask each version about all arms that are to run it."""
        asked: dict[str, list[Assignment]] = {}
        for levels in every:
            asked.setdefault(self._provided.level_of(levels), []).append(levels)
        with (
            tempfile.TemporaryDirectory(prefix="perfsweep-versions-") as folder,
            ThreadPoolExecutor(LOOKS_AT_ONCE) as pool,
        ):
            questions = {level: self._question(arms) for level, arms in asked.items()}
            waiting = {
                level: pool.submit(self._answer, Path(folder), level, question)
                for level, question in questions.items()
            }
            self._answers = {level: one.result() for level, one in waiting.items()}

    def _question(self, arms: Sequence[Assignment]) -> Question:
        own = [self._without(levels) for levels in arms]
        return Question(
            workload=dict(self._command.workload),
            toggles=list(own[0]),
            device=dataclasses.asdict(self._device),
            arms=[{"key": arm_key(one), "choices": self._choices(one)} for one in own],
            starts={arm_key(one): version_look.start_of(self._cls, one) for one in own},
        )

    def _answer(self, folder: Path, level: str, question: Question) -> Answer:
        code = self._provided.trees[level]
        place = folder / code.digest[:16] / level.replace("/", "-")
        tree.export(code, place)
        root = registry.import_root(self._cls)
        return version_look.ask(question, place, (str(root),) if root else ())

    def _without(self, levels: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in levels.items() if name != self._provided.toggle.name}

    def _choices(self, own: Mapping[str, Any]) -> dict[str, Any]:
        """The levels off their baselines."""
        toggle = self._provided.toggle
        return self._without(self._space.choices({toggle.name: toggle.levels[0].value, **own}))

    def arm(self, levels: Assignment, workload: str, config: Any) -> Arm:
        """Make the arm of some levels; two commits with the same code make the same one.

        Raises
        ------
        CannotRun
            The version cannot run it.
        """
        level, own = self._provided.level_of(levels), self._without(levels)
        answer, code = self._answers[level], self._provided.trees[level]
        name = self._provided.toggle.name
        if problem := answer.problem or answer.problems.get(arm_key(own), ""):
            raise CannotRun(f"{name}={level}: {problem}")
        known = answer.levels[arm_key(own)]
        identity = arm_id(workload, config, {**known, name: code.digest}, answer.code)
        return Arm(
            id=identity, label=self._space.label(levels), levels=levels, version=code.digest, own=known
        )

    def keep_runnable(
        self, planned: Sequence[PlannedEffect], refused: Sequence[Refusal], arm: Callable[[Assignment], Arm]
    ) -> tuple[list[PlannedEffect], list[Refusal]]:
        """Leave out effects that a version cannot run, or that compare a code with itself; say why.

        Raises
        ------
        SameCode
            Nothing is left, because all versions are the same code.
        CannotRun
            Nothing is left, for another reason.
        """
        kept: dict[object, PlannedEffect] = {}
        left_out, same = list(refused), 0
        for effect in planned:
            try:
                pairs = [(arm(one).id, arm(base).id) for one, base in effect.pairs]
                key = (effect.design, *(arm(one).id for one in effect.arms))
                nothing = all(one == base for one, base in pairs)
                same += nothing
                twin = effect.pairs[0][1] if nothing else kept[key].pairs[0][0] if key in kept else None
                reason = self._inert(effect.pairs[0][0], twin) if twin else ""
            except ConfigError as error:
                reason = str(error)
            if reason:
                left_out.append(Refusal(effect.design, effect.toggle, effect.level, reason))
            else:
                kept[key] = effect
        if not kept:
            every = "; ".join(dict.fromkeys(one.reason for one in left_out))
            raise (SameCode if same == len(planned) else CannotRun)(every)
        return list(kept.values()), left_out

    def _inert(self, levels: Assignment, other: Assignment) -> str:
        name, level_of = self._provided.toggle.name, self._provided.level_of
        return f"{name}={level_of(levels)} has the same code as {name}={level_of(other)}: it is inert"

    @property
    def by_exec(self) -> bool:
        """Whether any version wants its trials not to be forked."""
        return any(answer.by_exec for answer in self._answers.values())

    @property
    def versions(self) -> tuple[Version, ...]:
        """What was looked at and works, each code once."""
        made: dict[str, Version] = {}
        for level, answer in self._answers.items():
            code = self._provided.trees[level]
            if not answer.problem:
                version = Version(
                    toggle=self._provided.toggle.name,
                    level=level,
                    repository=str(code.repository.root),
                    commit=code.commit,
                    digest=code.digest,
                    code=answer.code,
                    config=answer.config,
                )
                made.setdefault(code.digest, version)
        return tuple(made.values())
