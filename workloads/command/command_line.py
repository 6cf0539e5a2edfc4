"""From the text of a command to the words and the variables that a program is started with."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from perfsweep.workloads.custom_toggles import Change, CustomToggles, with_arguments
from perfsweep.workloads.declarations import Level, Levels
from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.user_environment import at_start, user_environment

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
