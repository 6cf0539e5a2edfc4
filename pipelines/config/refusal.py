"""Why Hydra or OmegaConf refused a configuration, in the words of the user who typed it.

Their own messages speak of nodes, packages and plus signs: nothing of them is passed on but a value.
"""

from __future__ import annotations

import re
from dataclasses import Field, fields

from perfsweep.pipelines.config import spelling, types
from perfsweep.workloads.errors import ConfigError, did_you_mean

_MISSING = re.compile(r"(?:Could not find|Could not load|Cannot find primary config) '([^']+)'")
_WORDS = {"int": "a whole number", "float": "a number", "bool": "true or false", "str": "text"}


def sentence(command: str, error: Exception) -> str:
    """Write one sentence: the override or the field, what it should be, and what to do."""
    cause = error.__cause__ or error
    text = f"{error}\n{cause}"
    if place := _FILE.search(text):
        return f"{place[1]}.yaml: {_of_listed(cause) or _of_entry(command, text, cause)}"
    if listed := _of_listed(cause):
        return listed
    if name := str(getattr(cause, "full_key", None) or ""):
        return _of_value(name, _given(text), cause, spelling.options(command).get(name))
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
            spelling.refuse_unknown(command, name)
        except ConfigError as error:
            return str(error)
    return _of_value(name, "", cause, spelling.options(command).get(name))


def _of_listed(cause: BaseException) -> str:
    """What is wrong with an entry of a list of settings, of which OmegaConf tells no place; else nothing."""
    option = next(
        (one for one, kind in types.ENTRIES.items() if kind is getattr(cause, "object_type", None)), ""
    )
    name = str(getattr(cause, "full_key", None) or "")
    if not option or "." in name:
        return ""
    declared = {one.name: one for one in fields(types.ENTRIES[option])}
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
