"""What a command is, as plain data, and what follows from it: words, variables, toggles, units, names."""

from __future__ import annotations

import dataclasses
import math
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perfsweep.workloads import custom_toggles
from perfsweep.workloads.command.results import Sources
from perfsweep.workloads.custom_toggles import Change, CustomToggles, with_arguments
from perfsweep.workloads.declarations import Level, Levels, Toggle
from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.user_environment import at_start, user_environment


@dataclass(frozen=True)
class CommandConfig:
    """A program that is run as a whole, again and again.

    Attributes
    ----------
    command : program and arguments; no shell reads them. ``{seed}``, ``{scratch}`` (a folder that is empty
        before every run) and ``{TOGGLE}`` are filled in; arguments of toggles that it does not name follow
    folder : current folder of the program
    toggles : see `perfsweep.workloads.custom_toggles`
    evidence : what shows the result: `file` (paths), `json` (keys of the last JSON line of the output),
        `pattern` (regular expressions with named groups, the last match counts), `output` (its content)
    prepare : another command, run before every run and not timed
    timeout : seconds for one run; None: as long as the trial has
    expected_status : exit status of a run that went well
    units : what one run does, as a number or as a name in the evidence that the program reports
    data : files that the program reads; with other content, times are not compared
    """

    command: str = ""
    folder: str = "."
    toggles: dict[str, Any] = field(default_factory=dict)
    evidence: dict[str, Any] = field(default_factory=dict)
    prepare: str = ""
    timeout: float | None = None
    expected_status: int = 0
    units: str = "1"
    data: list[str] = field(default_factory=list)


def toggles_of(custom: CustomToggles) -> tuple[Toggle, ...]:
    """Toggles that act on the command alone: a trial needs no start of its own for their variables.

    Raises
    ------
    ConfigError
        A level replaces functions, or asks for several processes.
    """
    return tuple(_acting_outside(toggle, custom) for toggle in custom.toggles)


def _acting_outside(toggle: Toggle, custom: CustomToggles) -> Toggle:
    for level in toggle.levels:
        place = f"{toggle.source}.{toggle.name}.{level.value}"
        if custom.changes[toggle.name, str(level.value)].replace:
            raise ConfigError(f"{place}.replace: a command is no Python module, so nothing in it is replaced")
        if level.ranks > 1:
            raise ConfigError(f"{place}.ranks: write the launcher into the command, such as torchrun")
    levels = tuple(dataclasses.replace(level, env={}) for level in toggle.levels)
    return dataclasses.replace(toggle, levels=levels)


def unit_of(units: str, sources: Sources) -> str:
    """Name what times are per.

    Raises
    ------
    ConfigError
        `units` is neither a number above 0 nor something that the program reports.
    """
    if units in sources.reported:
        return units
    try:
        number = float(units)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        known = ", ".join(sources.reported) or "workload.evidence names nothing"
        raise ConfigError(
            f"workload.units={units} must be a number above 0 or what the program reports: {known}"
        )
    return "run" if number == 1 else "unit"


def title_of(words: list[str], files: tuple[Path, ...]) -> str:
    """Name folders of sweeps by the script, or else by the program."""
    return f"command-{(files[-1] if files else Path(words[0])).stem}"


def planned(config: CommandConfig) -> CommandConfig:
    """Fill in what depends on where the command was typed, and spell levels as JSON keeps them.

    Raises
    ------
    ConfigError
        The folder, or a file of the data, does not exist.
    """
    folder = Path(config.folder).expanduser().absolute()
    if not folder.is_dir():
        raise ConfigError(f"workload.folder={config.folder} is no folder; create it, or name another")
    for name in config.data:
        if not (folder / name).is_file():
            raise ConfigError(f"workload.data: {folder / name} does not exist")
    spelled = {name: _spelled(values) for name, values in config.toggles.items()}
    return dataclasses.replace(config, folder=str(folder), toggles=spelled)


def _spelled(values: Any) -> Any:
    if not isinstance(values, Mapping):
        return values
    return {str(name): body for name, body in custom_toggles.named(values).items()}


_OPERATORS = frozenset({"|", "||", "&", "&&", ";", "<", ">", ">>", "2>", "2>&1", "&>"})
_QUOTED = re.compile(r"'[^']*'|\"(?:\\.|[^\"\\])*\"")
_PLACE = re.compile(r"\{(\w+)\}")

_SOURCE = frozenset({".py", ".sh", ".bash", ".pl", ".rb", ".js", ".mjs", ".r", ".jl", ".lua", ".php", ".awk"})
"""Suffixes of files that are a program when an interpreter is given them."""


def words(text: str, place: str) -> list[str]:
    """Split a command into words, as a shell would that knows quotes and nothing else.

    Raises
    ------
    ConfigError
        There is no word, a quote is open, or it is meant for a shell; the message names `place`.
    """
    if operators := _OPERATORS.intersection(_QUOTED.sub("''", text).split()):
        raise ConfigError(
            f"{place} holds {sorted(operators)[0]}, and no shell reads it: write sh -c '...' around it"
        )
    try:
        found = shlex.split(text)
    except ValueError as error:
        raise ConfigError(f"{place}={text} cannot be split into words: {error}") from error
    if not found:
        raise ConfigError(f"{place} is empty; write {place}='program arguments'")
    return found


def filled(text: str, values: Mapping[str, str]) -> str:
    """Replace ``{name}`` where `values` has the name; other braces stay as they are."""
    return _PLACE.sub(lambda found: values.get(found[1], found[0]), text)


def arm_words(text: str, custom: CustomToggles, levels: Levels, values: Mapping[str, str]) -> list[str]:
    """Build the words of an arm: arguments of toggles at the places named after them, of others at the end.

    A word that is nothing but the place becomes as many words as the level has arguments.
    """
    changes = {name: custom.changes[name, str(levels[name])] for name in (one.name for one in custom.toggles)}
    given = words(text, "workload.command")
    placed = {name for word in given for name in _PLACE.findall(word) if name in changes}
    spread = [part for word in given for part in _placed(word, changes)]
    rest = [change for name, change in changes.items() if name not in placed]
    return [filled(word, values) for word in with_arguments(spread, rest)]


def _placed(word: str, changes: Mapping[str, Change]) -> Sequence[str]:
    alone = _PLACE.fullmatch(word)
    if alone and alone[1] in changes:
        return changes[alone[1]].args
    return [filled(word, {name: " ".join(change.args) for name, change in changes.items()})]


def program_files(given: Sequence[str], folder: Path) -> tuple[Path, ...]:
    """Find the files below `folder` that are the program: the first word, scripts, and modules after ``-m``.

    Inputs and outputs are none: a run that writes its output must not look like another program.
    """
    before = ["", *given]
    found = [
        path
        for number, (last, word) in enumerate(zip(before, given, strict=False))
        for path in _candidates(last, word, number, folder)
        if path.is_file() and path.resolve().is_relative_to(folder.resolve())
    ]
    return tuple(dict.fromkeys(found))


def _candidates(last: str, word: str, number: int, folder: Path) -> list[Path]:
    if last == "-m":
        module = folder.joinpath(*word.split("."))
        return [module.with_suffix(".py"), module / "__main__.py"]
    is_program = (number == 0 and "/" in word) or Path(word).suffix.lower() in _SOURCE
    return [folder / word] if is_program else []


def of_arm(
    levels: Iterable[Level],
    changes: Iterable[Change],
    values: Mapping[str, str],
    started: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Build the environment of an arm's command.

    Parameters
    ----------
    levels : with variables of their own, such as those of the toggle `allocator`
    changes : variables of the command's toggles; an empty one is taken away
    values : what ``{name}`` in a variable is replaced by
    started : the environment that this process was executed with, by default
    """
    environment = user_environment(at_start() if started is None else started)
    for level in levels:
        environment |= level.env
    for change in changes:
        for name, text in change.env.items():
            environment.pop(name, None)
            if text:
                environment[name] = filled(text, values)
    return environment
