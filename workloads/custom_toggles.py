"""Toggles written as data, for a program that runs unchanged: by argument, by variable, by replaced function.

::

    toggles:
      flash: {off: "--flash=False", on: "--flash=True", parity: tolerance}
      arena: {off: {}, on: {env: {MALLOC_ARENA_MAX: "1"}}}
      norm:  {off: {}, on: {replace: {"model:LayerNorm": "fast:LayerNorm"}}}

The first level is the baseline.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from perfsweep.workloads.declarations import ANYTHING, Level, Levels, LevelValue, Parity, Toggle, as_number
from perfsweep.workloads.errors import ConfigError, did_you_mean

OF_A_LEVEL = ("args", "env", "replace", "ranks", "parity", "bounds")
OF_A_TOGGLE = ("doc", "parity", "bounds", "witness")
"""Keys next to the levels of a toggle; parity and bounds are then those of every level but the first."""


@dataclass(frozen=True)
class Change:
    """What a level does to a program: further arguments, variables, and functions put in place of others.

    A variable with an empty text is one that the program must not see.
    """

    args: tuple[str, ...] = ()
    replace: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class CustomToggles:
    """Toggles with the change that each of their levels makes."""

    toggles: tuple[Toggle, ...]
    changes: Mapping[tuple[str, str], Change]

    @property
    def replaces(self) -> frozenset[str]:
        """The modules in which levels put functions in the place of others."""
        targets = (target for change in self.changes.values() for target in change.replace)
        return frozenset(target.partition(":")[0] for target in targets)

    def chosen(self, levels: Levels) -> list[Change]:
        """The changes of an arm, in the order in which the toggles are declared."""
        names = [toggle.name for toggle in self.toggles]
        return [self.changes[name, str(levels[name])] for name in names if name in levels]


def read(declared: Mapping[str, Any], where: str = "workload.toggles") -> CustomToggles:
    """Read toggles from their declaration.

    Raises
    ------
    ConfigError
        A toggle has fewer than two levels, or a key or value that cannot be meant; the message names it.
    """
    toggles, changes = [], {}
    for name, values in declared.items():
        place = f"{where}.{name}"
        levels = _levels_of(values, place)
        every = {key: values[key] for key in OF_A_TOGGLE if key in values}
        for number, (value, body) in enumerate(levels.items()):
            changes[str(name), str(value)] = _change(body, f"{place}.{value}")
            levels[value] = _level(value, body, every if number else {}, f"{place}.{value}")
        toggles.append(Toggle(str(name), tuple(levels.values()), str(every.get("doc", "your own")), where))
    return CustomToggles(tuple(toggles), changes)


def with_arguments(arguments: Iterable[str], changes: Iterable[Change]) -> list[str]:
    """Append the arguments of levels; one of the form ``--name=value`` takes the place of its like."""
    result = list(arguments)
    for text in (text for change in changes for text in change.args):
        option, equals, _ = text.partition("=")
        same = [
            place for place, old in enumerate(result) if equals and old.partition("=")[:2] == (option, "=")
        ]
        for place in same:
            result[place] = text
        if not same:
            result.append(text)
    return result


def named(values: Mapping[Any, Any]) -> dict[Any, Any]:
    """Name the levels that YAML reads as booleans, on and off; JSON would spell them otherwise again."""
    return {("on" if key else "off") if isinstance(key, bool) else key: body for key, body in values.items()}


def _levels_of(values: Any, place: str) -> dict[LevelValue, Any]:
    if not isinstance(values, Mapping):
        raise ConfigError(f"{place} must map levels to what they change, such as {{off: '', on: '--flash'}}")
    levels = {_value(key): body for key, body in named(values).items() if key not in OF_A_TOGGLE}
    if len(levels) < 2:
        raise ConfigError(
            f"{place} has {len(levels)} levels and needs two: the baseline first, then what is tried"
        )
    return levels


def _value(key: Any) -> LevelValue:
    """The level that a key means: YAML reads on and off as booleans, and JSON knows texts alone."""
    if isinstance(key, bool):
        return "on" if key else "off"
    number = as_number(str(key))
    return str(key) if number is None else number


def _body(body: Any, place: str) -> Mapping[str, Any]:
    if body is None or isinstance(body, str):
        return {"args": body or ""}
    if not isinstance(body, Mapping):
        raise ConfigError(f"{place} must be arguments as a text, or a mapping with {', '.join(OF_A_LEVEL)}")
    for key in body:
        if key not in OF_A_LEVEL:
            hint = did_you_mean(key, OF_A_LEVEL)
            raise ConfigError(f"{place}.{key} is unknown; {hint}a level has {', '.join(OF_A_LEVEL)}")
    return body


def _change(body: Any, place: str) -> Change:
    parts = _body(body, place)
    replace = _mapping(parts.get("replace"), f"{place}.replace")
    for one, other in replace.items():
        if ":" not in one or ":" not in other:
            raise ConfigError(f"{place}.replace: write module:function for {one} and for {other}")
    try:
        args = tuple(shlex.split(str(parts.get("args") or "")))
    except ValueError as error:
        raise ConfigError(f"{place}: the arguments {parts['args']!r} cannot be split: {error}") from error
    return Change(args, replace, _mapping(parts.get("env"), f"{place}.env"))


def _level(value: LevelValue, body: Any, every: Mapping[str, Any], place: str) -> Level:
    parts = {**every, **_body(body, place)}
    parity, ranks = str(parts.get("parity", "exact")), parts.get("ranks", 1)
    if parity not in list(Parity):
        raise ConfigError(f"{place}.parity={parity} is unknown; choose from: {', '.join(Parity)}")
    if not isinstance(ranks, int) or ranks < 1:
        raise ConfigError(f"{place}.ranks={ranks} must be a whole number from 1")
    bounds = {name: float(bound) for name, bound in _mapping(parts.get("bounds"), f"{place}.bounds").items()}
    env = {name: text for name, text in _mapping(parts.get("env"), f"{place}.env").items() if text}
    witness = parts.get("witness", ANYTHING)
    return Level(value, Parity(parity), bounds, env=env, ranks=ranks, witness=witness)


def _mapping(value: Any, place: str) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ConfigError(f"{place} must be a mapping of names to values")
    return {str(name): "" if one is None else str(one) for name, one in value.items()}
