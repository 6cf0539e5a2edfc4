"""Dataclasses from and to JSON by their annotations, with the standard library alone.

For processes that may have no other library. A number is given the declared type, a list becomes a list even
where a tuple of a user's configuration is declared, as OmegaConf does it, and nothing is guessed: what does
not fit is a `Misfit` that names the field.
"""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from collections.abc import Mapping, Sequence
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

AnyValue = TypeVar("AnyValue")

_NUMBERS = (bool, int, float)
_TRUTH = {"true": True, "false": False, "yes": True, "no": False, "on": True, "off": False}


class Misfit(ValueError):
    """A value that is not of the declared type; `field` is its dotted name, empty for the whole."""

    def __init__(self, field: str, value: Any, declared: Any) -> None:
        name = declared.__name__ if isinstance(declared, type) else str(declared)
        super().__init__(f"{field}={value!r} is no {name}" if field else f"{value!r} is no {name}")
        self.field = field


def build(cls: type[AnyValue], values: Mapping[str, Any], *, tuples: bool = True) -> AnyValue:
    """Make a dataclass of what JSON gave; fields that are left out have their defaults.

    Parameters
    ----------
    tuples : a field that is declared as a tuple holds one; False: it holds a list

    Raises
    ------
    Misfit
        A field does not exist, lacks a value, or has one of another type.
    """
    return _dataclass(cls, values, "", tuples)


def plain(value: Any) -> dict[str, Any]:
    """Turn a dataclass into what JSON gives back: scalars of numpy are numbers, NaN stays NaN."""
    return json.loads(json.dumps(dataclasses.asdict(value), default=_scalar))


def _scalar(value: Any) -> Any:
    """A number of numpy or torch, or a path."""
    return value.item() if hasattr(value, "item") else str(value)


def _dataclass(cls: type[AnyValue], values: Any, where: str, tuples: bool) -> AnyValue:
    if not isinstance(values, Mapping):
        raise Misfit(where, values, cls)
    declared = {one.name: one for one in dataclasses.fields(cls) if one.init}  # type: ignore[arg-type]
    if unknown := [name for name in values if name not in declared]:
        raise Misfit(_inside(where, str(unknown[0])), values[unknown[0]], f"field of {cls.__name__}")
    hints = _hints(cls)
    given = {name: _value(hints[name], one, _inside(where, name), tuples) for name, one in values.items()}
    for name, one in declared.items():
        if name not in given and one.default is one.default_factory is dataclasses.MISSING:
            raise Misfit(_inside(where, name), None, hints[name])
    return cls(**given)


@cache
def _hints(cls: type[Any]) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def _inside(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def _value(hint: Any, value: Any, where: str, tuples: bool) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any or isinstance(hint, TypeVar):
        return value
    if origin in (typing.Union, types.UnionType):
        return _first_that_fits(arguments, value, where, tuples)
    if origin is typing.Literal:
        return _one_of(arguments, value, where)
    base = origin or hint
    if isinstance(base, type) and issubclass(base, Mapping):
        return _mapping(arguments, value, where, tuples)
    if isinstance(base, type) and issubclass(base, Sequence) and not issubclass(base, (str, bytes)):
        return _sequence(base, arguments, value, where, tuples)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return _dataclass(hint, value, where, tuples)
    return _single(hint, value, where)


def _first_that_fits(hints: tuple[Any, ...], value: Any, where: str, tuples: bool) -> Any:
    """The alternative of the value's own type, else the first that it can be made."""
    own = [hint for hint in hints if hint is type(value)]
    for hint in own or hints:
        try:
            return _value(hint, value, where, tuples)
        except Misfit:
            continue
    raise Misfit(where, value, " or ".join(getattr(hint, "__name__", str(hint)) for hint in hints))


def _one_of(choices: tuple[Any, ...], value: Any, where: str) -> Any:
    if value not in choices:
        raise Misfit(where, value, f"one of {', '.join(map(str, choices))}")
    return value


def _mapping(hints: tuple[Any, ...], value: Any, where: str, tuples: bool) -> dict[Any, Any]:
    if not isinstance(value, Mapping):
        raise Misfit(where, value, dict)
    key_hint, inner = hints or (Any, Any)
    return {
        _value(key_hint, key, where, tuples): _value(inner, one, _inside(where, str(key)), tuples)
        for key, one in value.items()
    }


def _sequence(base: type, hints: tuple[Any, ...], value: Any, where: str, tuples: bool) -> Any:
    if not isinstance(value, (list, tuple)):
        raise Misfit(where, value, list)
    fixed = issubclass(base, tuple) and hints and hints[-1] is not Ellipsis
    each = hints if fixed and len(hints) == len(value) else [hints[0] if hints else Any] * len(value)
    items = [
        _value(hint, one, f"{where}[{number}]", tuples)
        for number, (hint, one) in enumerate(zip(each, value, strict=True))
    ]
    return tuple(items) if tuples and issubclass(base, tuple) else items


def _single(hint: Any, value: Any, where: str) -> Any:
    if hint is None or hint is type(None):
        made = None if value is None else Misfit
    elif isinstance(hint, type) and issubclass(hint, Enum):
        made = _member(hint, value)
    elif hint in _NUMBERS:
        made = _number(hint, value)
    elif hint is str:
        made = value if isinstance(value, str) else str(value) if isinstance(value, _NUMBERS) else Misfit
    elif hint is Path:
        made = Path(value) if isinstance(value, (str, Path)) else Misfit
    else:
        made = value if not isinstance(hint, type) or isinstance(value, hint) else Misfit
    if made is Misfit:
        raise Misfit(where, value, hint)
    return made


def _member(hint: type[Enum], value: Any) -> Any:
    if isinstance(value, hint):
        return value
    meant = [one for one in hint if one.value == value or one.name == str(value).rpartition(".")[2]]
    return meant[0] if meant else Misfit


def _number(hint: type, value: Any) -> Any:
    """A number as it is declared, where nothing is lost by it; texts of numbers are numbers."""
    if isinstance(value, str):
        value = _TRUTH.get(value.lower(), value) if hint is bool else value
    if type(value) is hint:
        return value
    if isinstance(value, bool) or (hint is bool and value not in (0, 1)):
        return Misfit
    try:
        made = hint(value)
    except (TypeError, ValueError, OverflowError):
        return Misfit
    return Misfit if hint is int and isinstance(value, float) and made != value else made
