"""What was typed after a composed command: taken as it can only be meant, else refused in its own words.

So is what Hydra and OmegaConf refuse. Reads declarations alone, so that a mistake is answered before Hydra
or torch is imported.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import Field
from pathlib import Path

from perfsweep.fields import default_of
from perfsweep.pipelines.config import launcher, names, types
from perfsweep.workloads.errors import ConfigError, did_you_mean

FLAGS = {"--cfg": 1, "-c": 1, "--info": 1, "-i": 1, "--package": 1, "-p": 1, "--resolve": 0}
"""Options of Hydra's that a command takes, each with the words that belong to it."""

MOST_CHARACTERS = 60_000
"""Of what is typed after a command, word by word: a list of ten thousand numbers fits."""

_CLOSING = {"[": "]", "{": "}", "(": ")"}
_KEY = re.compile(r"(\+{0,2})([\w.]+)")


def read(command: str, words: Sequence[str]) -> list[str]:
    """Read the words after a command: the bare name of a workload becomes ``workload=NAME``.

    Raises
    ------
    ConfigError
        A word is no override, names no option, or its value is not whole.
    """
    waiting, found = list(words), list[str]()
    while waiting:
        word = waiting.pop(0)
        if len(word) > MOST_CHARACTERS:
            raise ConfigError(f"{word[:40]}...: it has more than {MOST_CHARACTERS:,} characters. Write less")
        if word.startswith("-"):
            found += [word, *_values_of_flag(command, word, waiting)]
        elif "=" in word or word.startswith("~"):
            found.append(_override(command, word, waiting))
        else:
            found.append(_bare(command, word, [*found, *waiting]))
    return found


def options(command: str) -> dict[str, Field]:
    """List every option of a command by its whole name, such as ``measure.rounds``."""
    return dict(_declared(types.COMMANDS[command], ""))


def _declared(declared: type, prefix: str) -> Iterator[tuple[str, Field]]:
    for one in dataclasses.fields(declared):
        name, default = f"{prefix}{one.name}", default_of(one)
        yield name, one
        if dataclasses.is_dataclass(default):
            yield from _declared(type(default), f"{name}.")


def _values_of_flag(command: str, word: str, waiting: list[str]) -> list[str]:
    """Take the words that belong to an option of Hydra's; others are no options."""
    flag, equals, value = word.partition("=")
    if flag in FLAGS:
        count = 0 if equals else FLAGS[flag]
        return [waiting.pop(0) for _ in range(min(count, len(waiting)))]
    if flag in ("-m", "--multirun"):
        raise ConfigError(f"{flag}: one sweep measures several levels: axes.NAME=[LEVEL,LEVEL]")
    name = flag.strip("-").replace("-", "_")
    follows = waiting[0] if waiting and "=" not in waiting[0] and not waiting[0].startswith("-") else "VALUE"
    meant = _meant(command, name)
    remedy = f"write {meant}={value if equals else follows}" if meant else "options are written FIELD=VALUE"
    if name not in options(command) and "cluster" in types.parts(command):
        remedy = launcher.meant(name, value if equals else follows) or remedy
    raise ConfigError(f"{flag} is no option of perfsweep {command}; {remedy}")


def _meant(command: str, name: str) -> str | None:
    """The whole name of the option that ends in `name`, or nearly does."""
    known = options(command)
    ends = {whole.rpartition(".")[2]: whole for whole in reversed(known)}
    close = difflib.get_close_matches(name, ends, n=1, cutoff=0.8)
    return name if name in known else ends.get(name) or ends.get(close[0] if close else "")


def _bare(command: str, word: str, others: Sequence[str]) -> str:
    """A word without ``=``: the name of a workload, and nothing else."""
    named = any(one.startswith("workload=") for one in others)
    if "workload" in types.parts(command) and not named and names.is_workload(word):
        return f"workload={word}"
    groups = names.groups(command)
    workload = names.workload_of(list(others))
    fits = [group for group in groups if word in names.choices(group, workload) and group != "toggles"]
    if fits:
        raise ConfigError(f"{word}: options are written NAME=VALUE; did you mean {fits[0]}={word}?")
    if (Path(word) / "manifest.jsonl").is_file():
        raise ConfigError(
            f"{word}: this is the folder of a sweep, and {command} takes a workload. `perfsweep compare"
            f" {word}` shows the sweep; its last line has the next command."
        )
    near = did_you_mean(word, names.workloads()) if "workload" in groups and not named else ""
    meant = near.replace("mean ", "mean workload=")
    raise ConfigError(f"{word} is no FIELD=VALUE; {meant}`perfsweep {command} --help` lists the fields")


def _override(command: str, word: str, waiting: Sequence[str]) -> str:
    """Check one override; a plus in front of an option that exists means the option."""
    if command in ("tune", "frontier") and word.startswith("sweep="):
        raise ConfigError(
            f"{word}: `perfsweep {command}` chooses its own arms. Leave {word} out; `perfsweep {command}"
            f" --help` lists what {command}.FIELD may change."
        )
    if _LAUNCHER.match(word):
        raise ConfigError(
            f"{word}: perfsweep submits by itself, with cluster=slurm. Leave it out; `perfsweep init"
            " --launcher=FILE` makes a site profile of a launcher's file."
        )
    key, equals, value = word.partition("=")
    if equals:
        _refuse_open(command, key, value, waiting)
    plain = _KEY.fullmatch(key)
    if plain is None:
        return word  # of another package, or a deletion: Hydra's own syntax
    name = plain[2]
    refuse_unknown(command, name, value)
    return f"{name}{equals}{value}" if plain[1] and equals else word


_LAUNCHER = re.compile(r"\+{0,2}hydra[./]launcher\b")


def refuse_unknown(command: str, name: str, value: str = "") -> None:
    """Refuse the whole name of an option that a command has not; `value` is what was given for it.

    Raises
    ------
    ConfigError
        The command has no such option; the message has the nearest name and all names.
    """
    top, parts, known = name.partition(".")[0], types.parts(command), options(command)
    if top == "hydra" or name in known:
        return
    own = name.removeprefix("cluster.").partition(".")[0]
    if f"cluster.{own}" not in known and "cluster" in parts and (theirs := launcher.meant(own, value)):
        raise ConfigError(f"{name} is what submitit calls it; {theirs}")
    if top not in parts:
        if other := next((one for one in types.COMMANDS if top in types.parts(one)), None):
            raise ConfigError(
                f"{name} is an option of perfsweep {other}, and not of {command}; choose from:"
                f" {', '.join(parts)}"
            )
        meant = _meant(command, name) if "." not in name else None
        hint = f"did you mean {meant}? " if meant else did_you_mean(top, parts)
        raise ConfigError(f"{top} is unknown; {hint}choose from: {', '.join(parts)}")
    while "." in name:
        above = name.rpartition(".")[0]
        own = [one.removeprefix(f"{above}.") for one in known if one.rpartition(".")[0] == above]
        if own:
            wrong = name.rpartition(".")[2]
            hint = did_you_mean(wrong, own)
            raise ConfigError(f"{name} is unknown; {hint}{above} has: {', '.join(own)}")
        if above in known:
            return  # a mapping, whose keys are the workload's or the user's
        name = above


TEXT, TEXTS = ("str", "str | None"), ("list[str]",)
"""Types of options that are taken as they were typed: a text, and each of a list."""


def is_any(types_: tuple[str, ...], command: str, key: str) -> bool:
    """Whether an option is declared with one of these types."""
    declared = options(command).get(key.lstrip("+"))
    return declared is not None and str(declared.type) in types_


def _refuse_open(command: str, key: str, value: str, waiting: Sequence[str]) -> None:
    """Refuse brackets and quotes without their other half, and several values that are no list."""
    if is_any(TEXT, command, key) and not value.startswith((*_CLOSING, "'", '"')):
        return
    text = key.startswith("workload.") and not value.startswith(tuple(_CLOSING))
    if value.startswith("-"):
        return  # arguments of a program, which are taken literally
    expected, commas = _left_open(value)
    if text and (expected or re.search(r"[\s'\"]", value)):
        return  # a text of the user's is taken as it was typed
    if expected in ("'", '"'):
        raise ConfigError(f"{key}={value}: the quote {expected} has no end; add {expected}, or take it away")
    if expected.startswith("!"):
        raise ConfigError(f"{key}={value}: {expected[1]} closes nothing; take it away, or add its other half")
    if expected:
        rest = _rest(waiting)
        whole = f"{key}={value}{''.join(rest)}" if rest else f"{key}={value}{expected}"
        shell = "; the shell splits at spaces, so write it without any, or in quotes" if rest else ""
        raise ConfigError(f"{key}={value}: a closing {expected} is missing: write '{whole}'{shell}")
    if commas:
        raise ConfigError(
            f"{key}={value}: several values are a list: write '{key}=[{value}]'; a text with a comma is"
            f" \"{key}='{value}'\""
        )


def _rest(waiting: Sequence[str]) -> list[str]:
    """The following words up to one that closes a bracket, where none of them is an override."""
    for count, word in enumerate(waiting, 1):
        if "=" in word:
            return []
        if word.endswith(("]", "}", ")")):
            return list(waiting[:count])
    return []


def _left_open(value: str) -> tuple[str, bool]:
    """What a value still needs at its end, and whether it has a comma outside of brackets and quotes.

    ``!]`` means a bracket that closes nothing.
    """
    closing, quote, commas, before = list[str](), "", False, ""
    for letter in value:
        escaped, before = before == "\\", letter
        if quote:
            quote = "" if letter == quote and not escaped else quote
        elif letter in "'\"" and not escaped:
            quote = letter
        elif letter in _CLOSING:
            closing.append(_CLOSING[letter])
        elif letter in _CLOSING.values():
            if not closing or closing.pop() != letter:
                return f"!{letter}", commas
        elif letter == "," and not closing:
            commas = True
    return quote or "".join(reversed(closing)), commas


_MISSING = re.compile(r"(?:Could not find|Could not load|Cannot find primary config) '([^']+)'")
_WORDS = {"int": "a whole number", "float": "a number", "bool": "true or false", "str": "text"}


def refusal(command: str, error: Exception) -> str:
    """Why Hydra or OmegaConf refused a configuration: the override or field, what it should be, what to do.

    Their own messages speak of nodes, packages and plus signs: nothing of them is passed on but a value.
    """
    cause = error.__cause__ or error
    text = f"{error}\n{cause}"
    if place := _FILE.search(text):
        return f"{place[1]}.yaml: {_of_listed(cause) or _of_entry(command, text, cause)}"
    if listed := _of_listed(cause):
        return listed
    if name := str(getattr(cause, "full_key", None) or ""):
        return _of_value(name, _given(text), cause, options(command).get(name))
    if missing := _MISSING.search(text):
        return (
            f"{missing[1]}: there is no such configuration; `perfsweep list` shows workloads and their sweeps"
        )
    if override := getattr(cause, "override", None) or _given(text):
        return (
            f"{override} cannot be read; write it as FIELD=VALUE, and a value with spaces, commas or brackets"
            " in quotes within quotes: \"FIELD='VALUE'\""
        )
    return "a YAML file of the configuration has a key that is no name; keys are fields, or texts in quotes"


_FILE = re.compile(rf"[Ii]n '((?!(?:{'|'.join(types.COMMANDS)})')[\w./-]+)'(?:: | *, defaults)")
"""Where Hydra names the file of a group that it was reading, ours for a command aside."""


def _of_entry(command: str, text: str, cause: BaseException) -> str:
    """What is wrong in a YAML file with one of its entries."""
    if missing := _MISSING.search(text):
        return f"defaults: there is no {missing[1]}.yaml next to it, nor among perfsweep's own"
    if "defaults must be a list" in text:
        return "defaults must be a list of names, such as [slurm]"
    if (found := re.search(r"full_key: (\S+)", text)) is None:
        return "it must hold FIELD: VALUE, one in a line, with fields that perfsweep has"
    name = found[1]
    if re.search(r"Key '.*' not in '", text):
        try:
            refuse_unknown(command, name)
        except ConfigError as error:
            return str(error)
    return _of_value(name, "", cause, options(command).get(name))


def _of_listed(cause: BaseException) -> str:
    """What is wrong with an entry of a list of settings, of which OmegaConf tells no place; else nothing."""
    option = next(
        (one for one, kind in types.ENTRIES.items() if kind is getattr(cause, "object_type", None)), ""
    )
    name = str(getattr(cause, "full_key", None) or "")
    if not option or "." in name:
        return ""
    declared = {one.name: one for one in dataclasses.fields(types.ENTRIES[option])}
    if name not in declared:
        hint = did_you_mean(name, declared)
        return f"{option}: {name} is unknown; {hint}an entry has: {', '.join(declared)}"
    value = re.search(r"Value '(.*?)'", str(cause), re.DOTALL)
    wrong = wrong_type(name, value[1] if value else None, declared[name])
    return f"{option}: {wrong.partition(': write')[0]}"


def wrong_type(name: str, value: object, declared: Field | None) -> str:
    """Say what a field takes instead of a value."""
    kind = _kind(declared) if declared else ""
    given = f"{name}={value}" if value is not None else name
    if kind.startswith("list"):
        return f"{given} is no list: write '{name}=[{'VALUE' if value is None else value}]'"
    if kind.startswith("dict") or kind.endswith("Config"):
        return f"{given} is no mapping: write {name}.NAME=VALUE, one for each"
    also = ", or null" if declared is not None and "None" in str(declared.type) else ""
    return f"{given} is not {_WORDS.get(kind, 'of the right type')}{also}"


def _kind(declared: Field) -> str:
    """The type of a field as it is written, whether annotations are kept as text or not."""
    written = declared.type if isinstance(declared.type, str) else getattr(declared.type, "__name__", "")
    return written.replace(" | None", "")


def _of_value(name: str, given: str, cause: BaseException, declared: Field | None) -> str:
    kind = type(cause).__name__
    if kind.startswith("Interpolation"):
        return f"{given or name}: what it refers to with ${{...}} does not exist; write the value itself"
    if kind == "MissingMandatoryValue":
        return f"{name} is missing: give it as {name}=VALUE"
    value = re.search(r"Value '(.*?)'", str(cause), re.DOTALL)
    shown = given.partition("=")[2] if given.startswith(f"{name}=") else (value[1] if value else None)
    return wrong_type(name, shown, declared)


def _given(text: str) -> str:
    """The override that a message is about."""
    found = re.search(r"(?:override|parsing override|override value) '?\+{0,2}([\w./@]+=[^'\n]*)'?", text)
    return found[1].strip() if found else ""
