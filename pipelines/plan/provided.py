"""Toggles that the sweep provides, and not the workload: what trials run, and the environment they run in.

A workload never sees their levels. Each combination of them is looked at in a process of its own before
anything is planned on it, as the workload may declare other toggles there, or not work at all.
"""

from __future__ import annotations

import dataclasses
import hashlib
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfsweep.pipelines.config.types import SweepCommand
from perfsweep.pipelines.config.validation import text_keys
from perfsweep.pipelines.plan import version_look
from perfsweep.pipelines.plan.arms import Space
from perfsweep.pipelines.plan.designs import Assignment, PlannedEffect, refusal
from perfsweep.pipelines.plan.version_look import Answer, Question, arm_key
from perfsweep.pipelines.store import code_snapshot
from perfsweep.pipelines.store.records import Arm, Environment, Refused, Version
from perfsweep.pipelines.trial.identity import arm_id
from perfsweep.pipelines.versions import environments, tree
from perfsweep.pipelines.versions.environments import ENVIRONMENT
from perfsweep.pipelines.versions.repository import Repository
from perfsweep.pipelines.versions.tree import PATCH, Tree
from perfsweep.workloads import registry
from perfsweep.workloads.api import Declaration, Device, Level, Toggle
from perfsweep.workloads.errors import ConfigError

LOOKS_AT_ONCE = 4


class SameCode(ConfigError):
    """Everything that a sweep was to compare is one and the same code."""


class CannotRun(ConfigError):
    """A version has not got the workload, or cannot run it."""


Part = Tree | Environment
"""The code or the environment that a level selects."""

Choice = tuple[str, ...]
"""A level of each provided toggle, in their order."""


@dataclass(frozen=True)
class Provided:
    """The toggles that a sweep provides, with what each of their levels names."""

    toggles: tuple[Toggle, ...]
    parts: Mapping[str, Mapping[str, Part]]

    def onto(self, cls: type[Declaration]) -> type[Declaration]:
        """The workload with the toggles among its own, for planning alone."""
        names = {"__module__": cls.__module__, "__qualname__": cls.__qualname__}
        return type(cls.__name__, (cls,), {**names, "toggles": (*self.toggles, *cls.toggles)})

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the toggles."""
        return tuple(toggle.name for toggle in self.toggles)

    def choice(self, levels: Mapping[str, Any]) -> Choice:
        """The levels of these toggles in an arm."""
        return tuple(str(levels[name]) for name in self.names)

    def code(self, choice: Choice) -> Tree | None:
        """The code of the user's that a choice runs; None for the checkout's, as with any sweep."""
        return next((part for part in self._chosen(choice) if isinstance(part, Tree)), None)

    def environment(self, choice: Choice) -> Environment | None:
        """The environment that a choice runs in; None for this installation."""
        return next((part for part in self._chosen(choice) if isinstance(part, Environment)), None)

    def named(self, choice: Choice) -> dict[str, str]:
        """The level of each toggle in a choice."""
        return dict(zip(self.names, choice, strict=True))

    def _chosen(self, choice: Choice) -> Iterator[Part]:
        yield from (self.parts[name][level] for name, level in self.named(choice).items())

    def text(self, choice: Choice) -> str:
        """A choice in words."""
        return ", ".join(f"{name}={level}" for name, level in self.named(choice).items())


def find_provided(cls: type[Declaration], command: SweepCommand) -> Provided | None:
    """Read the code and find the environments that a sweep names; a workload's own toggle comes first.

    None where it names none.

    Raises
    ------
    ConfigError
        A version is unknown, or the workload has none.
    """
    own = {toggle.name for toggle in (*cls.toggles, *cls.on_request)}
    toggles, parts = [], {}
    for name, (doc, make) in PROVIDERS.items():
        values = list(dict.fromkeys(_values_of(name, [command.axes, _parts(command)])))
        if values and name not in own:
            parts[name] = make(cls, name, values, command)
            levels = tuple(_level(value, parts[name][value]) for value in values)
            toggles.append(Toggle(name, levels, doc))
    return Provided(tuple(toggles), parts) if toggles else None


def _level(value: Any, part: Part) -> Level:
    """The level of a part; a patch says how far results may move."""
    return Level(value, part.parity, part.bounds) if isinstance(part, Tree) else Level(value)


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


def _refuse_few(name: str, values: Sequence[Any], what: str, base: str, unread: str) -> None:
    """Refuse a level that YAML reads as no text, and one that there is nothing to compare with."""
    if numbers := [value for value in values if not isinstance(value, str)]:
        raise ConfigError(f"axes.{name}={numbers[0]}: {unread}")
    if len(values) < 2:
        raise ConfigError(
            f"axes.{name} names one {what}; name the base first: 'axes.{name}=[{base},{values[0]}]'"
        )


def commits(
    cls: type[Declaration], name: str, values: Sequence[Any], command: SweepCommand
) -> Mapping[str, Tree]:
    """The code at commits of the repository that the workload's file lies in."""
    _refuse_few(
        name,
        values,
        "version",
        "main",
        f"a hash that reads as a number must be quoted: \"axes.{name}=[main,'1234567']\"",
    )
    file = workload_file(cls)
    repository = Repository.of(file)
    try:
        trees = {value: tree.read(repository, value, registry.from_outside(cls)) for value in values}
    except ConfigError as error:
        raise ConfigError(f"axes.{name}: {error}") from None
    lacking = [value for value, one in trees.items() if file not in one.files]
    if lacking:
        place = file.relative_to(repository.root)
        raise CannotRun(
            f"axes.{name}: {', '.join(lacking)} has no {place}; name commits that have the workload"
        )
    return trees


ENVIRONMENTS = ".environments"
"""Next to the sweeps: where nodes find environments of lock files too."""


def installations(
    cls: type[Declaration], name: str, values: Sequence[Any], command: SweepCommand
) -> Mapping[str, Environment]:
    """The environments that trials run in."""
    _refuse_few(name, values, "environment", ".venv", f"name environments, as 'axes.{name}=[.venv,.venv-b]'")
    try:
        return {value: environments.find(value, Path(command.runs, ENVIRONMENTS)) for value in values}
    except ConfigError as error:
        raise ConfigError(f"axes.{name}: {error}") from None


def patches(
    cls: type[Declaration], name: str, values: Sequence[Any], command: SweepCommand
) -> Mapping[str, Tree]:
    """The workload's own files, and the same with patches."""
    files = [file.absolute() for file in registry.from_outside(cls)]
    return {value: tree.with_patch(value, files) for value in map(str, values)}


Provider = Callable[[type[Declaration], str, Sequence[Any], SweepCommand], Mapping[str, Part]]

PROVIDERS: dict[str, tuple[str, Provider]] = {
    "commit": ("the user's code at a commit, or as the checkout has it now", commits),
    PATCH: ("the user's code with a patch that perfsweep tune has written, or original", patches),
    ENVIRONMENT: ("interpreter and libraries that trials run with", installations),
}
"""Toggles that any sweep may name, by their names: what they are, and what finds their levels."""


def workload_file(cls: type[Declaration]) -> Path:
    """The user's file that a workload is: its script, the module of its class, or what its command runs.

    Raises
    ------
    ConfigError
        It is none of the user's.
    """
    stated = Path(cls.origin or registry.origin(cls).rpartition(":")[0])
    users = {one.resolve() for one in registry.from_outside(cls)}
    for file in (stated, *(one.resolve() for one in cls.files)):
        if file.suffix == ".py" and file in users:
            return file
    raise ConfigError(
        f"{cls.__name__} is no Python code of your own, so it has no versions: they are of a script, of a"
        " workload class, or of a Python file that workload.command names, in a git repository"
    )


class Cast:
    """Gives arms of a sweep with versions what they run, once every version was looked at."""

    def __init__(
        self, provided: Provided, space: Space, cls: type[Declaration], command: SweepCommand, device: Device
    ) -> None:
        self._provided, self._space, self._cls = provided, space, cls
        self._command, self._device = command, device
        self._answers: dict[Choice, Answer] = {}

    def look(self, every: Sequence[Assignment]) -> None:
        """Ask each version about all arms that are to run it."""
        asked: dict[Choice, list[Assignment]] = {}
        for levels in every:
            asked.setdefault(self._provided.choice(levels), []).append(levels)
        with (
            tempfile.TemporaryDirectory(prefix="perfsweep-versions-") as folder,
            ThreadPoolExecutor(LOOKS_AT_ONCE) as pool,
        ):
            copies = _measuring_code(Path(folder)) if ENVIRONMENT in self._provided.names else None
            questions = {choice: self._question(arms) for choice, arms in asked.items()}
            waiting = {
                choice: pool.submit(self._answer, Path(folder, str(number)), choice, question, copies)
                for number, (choice, question) in enumerate(questions.items())
            }
            self._answers = {choice: one.result() for choice, one in waiting.items()}

    def _question(self, arms: Sequence[Assignment]) -> Question:
        own = [self._without(levels) for levels in arms]
        return Question(
            workload=text_keys(self._command.workload),
            toggles=list(own[0]),
            device=dataclasses.asdict(self._device),
            arms=[{"key": arm_key(one), "choices": self._choices(one)} for one in own],
            starts={arm_key(one): version_look.start_of(self._cls, one) for one in own},
        )

    def _answer(self, folder: Path, choice: Choice, question: Question, copies: Path | None) -> Answer:
        """Ask in the environment of a choice, about its code as trials will find it: copied."""
        code, environment = self._provided.code(choice), self._provided.environment(choice)
        if code:
            tree.export(code, folder / "sources-code")
        else:
            code_snapshot.take_sources(folder, "code", registry.from_outside(self._cls))
        root = registry.import_root(self._cls)
        import_path = [str(root)] if root else []
        own = code_snapshot.sources_env(folder, "code")
        if environment and copies:
            ours = [str(code_snapshot.latest(copies)), *import_path, *version_look.python_path()]
            own |= tree.variables(environment, copies, ours)
        return version_look.ask(question, folder, own, import_path)

    def _without(self, levels: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in levels.items() if name not in self._provided.names}

    def _choices(self, own: Mapping[str, Any]) -> dict[str, Any]:
        """The levels off their baselines."""
        base = {toggle.name: toggle.levels[0].value for toggle in self._provided.toggles}
        return self._without(self._space.choices({**base, **own}))

    def arm(self, levels: Assignment, workload: str, config: Any) -> Arm:
        """Make the arm of some levels; two versions that run the same make the same one.

        Raises
        ------
        CannotRun
            The version cannot run it.
        """
        choice, own = self._provided.choice(levels), self._without(levels)
        answer = self._answers[choice]
        if problem := answer.problem or answer.problems.get(arm_key(own), ""):
            raise CannotRun(f"{self._provided.text(choice)}: {problem}")
        known = answer.levels[arm_key(own)]
        identity = arm_id(workload, config, {**known, **self._digests(choice)}, answer.code)
        label, version = self._space.label(levels), self._digest(choice)
        return Arm(id=identity, label=label, levels=levels, version=version, own=known)

    def _digests(self, choice: Choice) -> dict[str, str]:
        """What tells each level's code or environment from others, by its toggle."""
        named = self._provided.named(choice)
        parts = {name: self._provided.parts[name][level] for name, level in named.items()}
        installed = self._answers[choice].installed
        return {name: one.digest if isinstance(one, Tree) else installed for name, one in parts.items()}

    def _digest(self, choice: Choice) -> str:
        each = list(self._digests(choice).values())
        return each[0] if len(each) == 1 else hashlib.sha256(" ".join(each).encode()).hexdigest()

    def keep_runnable(
        self, planned: Sequence[PlannedEffect], refused: Sequence[Refused], arm: Callable[[Assignment], Arm]
    ) -> tuple[list[PlannedEffect], list[Refused]]:
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
            key: object = None
            try:
                pairs = [(arm(one).id, arm(base).id) for one, base in effect.pairs]
                key = (effect.design, *(arm(one).id for one in effect.arms))
                nothing = all(one == base for one, base in pairs)
                same += nothing
                twin = effect.pairs[0][1] if nothing else kept[key].pairs[0][0] if key in kept else None
                reason = self._without_effect(effect.pairs[0][0], twin) if twin else ""
            except ConfigError as error:
                reason = str(error)
            if reason:
                left_out.append(refusal(effect.design, effect.toggle, effect.level, reason))
            else:
                kept[key] = effect
        if not kept:
            every = "; ".join(dict.fromkeys(one.reason for one in left_out))
            raise (SameCode if same == len(planned) else CannotRun)(every)
        return list(kept.values()), left_out

    def _without_effect(self, levels: Assignment, other: Assignment) -> str:
        one, base = (self._provided.named(self._provided.choice(arm)) for arm in (levels, other))
        name = next((name for name in one if one[name] != base[name]), next(iter(one)))
        level, twin = one[name], base[name]
        same = "the same interpreter and packages" if name == ENVIRONMENT else "the same code"
        return f"{name}={level} has {same} as {name}={twin}: it has no effect"

    @property
    def by_exec(self) -> bool:
        """Whether any version wants its trials not to be forked."""
        return any(answer.by_exec for answer in self._answers.values())

    @property
    def versions(self) -> tuple[Version, ...]:
        """What was looked at and works, each code once."""
        made: dict[str, Version] = {}
        for choice, answer in self._answers.items():
            if not answer.problem:
                version = self._version(choice, answer)
                made.setdefault(version.digest, version)
        return tuple(made.values())

    def _version(self, choice: Choice, answer: Answer) -> Version:
        code, environment = self._provided.code(choice), self._provided.environment(choice)
        found = {"installed": answer.installed, "packages": answer.packages, "keys": answer.keys}
        return Version(
            levels=self._provided.named(choice),
            digest=self._digest(choice),
            code=answer.code,
            config=answer.config,
            repository=str(code.repository.root) if code and code.repository else "",
            commit=code.commit if code else None,
            sources=code.digest if code else "",
            environment=environment.model_copy(update=found) if environment else None,
        )


def _measuring_code(folder: Path) -> Path:
    """Copy what measures, and the libraries it brings along: installed, it lies among all other packages."""
    copies = folder / "code"
    code_snapshot.take(copies)
    code_snapshot.take_libraries(copies)
    return copies
