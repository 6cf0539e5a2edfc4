"""Write the options of `perfsweep.sweep` as types, so that editors complete and check them.

``PYTHONPATH=tests/support python -m typed_options > pipelines/config/sweep_options.py`` reads the
declarations that ``docs/options.md`` is made of.
"""

from __future__ import annotations

import textwrap
import typing
from collections.abc import Iterator
from dataclasses import Field, fields, is_dataclass
from types import UnionType
from typing import Any

from perfsweep.fields import choices_of, default_of
from perfsweep.pipelines.config.types import SweepCommand
from perfsweep.pipelines.store.options import MeasureConfig

_WIDEST, _LONGEST = 110, 80
"""Most characters of a line, and of choices on one line."""
_HEAD = '''"""The options of `perfsweep.sweep`, for editors; fields of `measure` need no prefix.

Written by ``PYTHONPATH=tests/support python -m typed_options > pipelines/config/sweep_options.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any, Literal, TypedDict
'''
_AS_GIVEN = {
    "workload": "str | type | Mapping[str, Any]",
    "toggles": "str | Mapping[str, Any]",
    "runs": "str | PathLike[str]",
    "keep": "str | PathLike[str] | None",
}
"""Options that Python may give otherwise than their types say: by a class, a mapping, a path."""


def module() -> str:
    """Write the module."""
    parts: dict[str, type[Any]] = {}
    _collect(SweepCommand, parts)
    classes = [_class(name, declared) for name, declared in parts.items()]
    return "\n\n".join([_HEAD, *classes, _class("SweepOptions", SweepCommand, _name(MeasureConfig))])


def _collect(declared: type[Any], parts: dict[str, type[Any]]) -> None:
    """Find the parts that options hold, by their names here, those within others first."""
    hints = typing.get_type_hints(declared)
    for one in fields(declared):
        for inner in (hints[one.name], *typing.get_args(hints[one.name])):
            if is_dataclass(inner) and isinstance(inner, type):
                _collect(inner, parts)
                parts.setdefault(_name(inner), inner)


def _name(declared: type[Any]) -> str:
    return f"{declared.__name__.removesuffix('Config')}Part"


def _class(name: str, declared: type[Any], base: str = "TypedDict") -> str:
    summary = (declared.__doc__ or "").strip().split("\n", maxsplit=1)[0]
    lines = [*_words(summary), "", *_lines(declared), ""]
    return "\n".join([f"class {name}({base}, total=False):", *lines])


def _lines(declared: type[Any]) -> list[str]:
    """Write each option with its type and what it is."""
    hints = typing.get_type_hints(declared)
    lines = []
    for one in fields(declared):
        lines += [f"    {one.name}: {_type(one, hints[one.name])}", *_words(one.metadata["description"])]
    return lines


def _words(text: str) -> Iterator[str]:
    plain = text.replace("\\", "\\\\").replace('"', "'")
    whole = f'    """{plain}"""'
    if len(whole) <= _WIDEST:
        yield whole
        return
    first, *rest = textwrap.wrap(f'"""{plain}', _WIDEST - 4, break_long_words=False)
    yield from (f"    {line}" for line in (first, *rest, '"""'))


def _type(declared: Field[Any], hint: Any) -> str:
    """Write what Python may pass for an option: a list as any sequence, a part as a name or a mapping."""
    if declared.name in _AS_GIVEN:
        return _AS_GIVEN[declared.name]
    if choices := choices_of(declared):
        words = f"Literal[{', '.join(repr(one) for one in choices)}]".replace("'", '"')
        one_of = f"Sequence[{words}]" if typing.get_origin(hint) is list else words
        if len(one_of) <= _LONGEST:
            return f"{one_of} | None" if default_of(declared) is None else one_of
    return f"str | {_written(hint)}" if is_dataclass(hint) else _written(hint)


def _written(hint: Any) -> str:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (UnionType, typing.Union):
        return " | ".join(map(_written, arguments))
    if origin in (list, dict):
        name = {list: "Sequence", dict: "Mapping"}[origin]
        return f"{name}[{', '.join(map(_written, arguments))}]"
    if is_dataclass(hint) and isinstance(hint, type):
        return _name(hint)
    return {Any: "Any", type(None): "None"}.get(hint) or str(getattr(hint, "__name__", hint))


if __name__ == "__main__":
    print(module(), end="")
