"""Arguments of a call: set where they are written, else added at its end."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Mapping, Sequence

from perfsweep.workloads.script.edits.source import Edit, NoEdit, Source

_CLOSER = re.compile(rb"\s+|\\\r?\n|#[^\r\n]*")
"""What may be between the last argument and the end of a call, brackets and a comma aside."""


def with_arguments(
    source: Source,
    call: ast.Call,
    values: Mapping[str, str],
    positions: Sequence[str] = (),
    given: Collection[str] = (),
) -> list[Edit]:
    """Give a call named arguments.

    Parameters
    ----------
    values : source of each argument's value, by its name
    positions : names of the arguments that may be given without a name, in their order
    given : names that the call was seen to pass, however they are written

    Raises
    ------
    NoEdit
        One of them is passed by ``*`` or ``**``.
    """
    edits, added = list[Edit](), list[str]()
    for name, value in values.items():
        written = _written(call, name, positions)
        if written is not None:
            edits.append(Edit(*source.span(written), value))
        elif name in given:
            raise NoEdit(f"passes {name} by * or **; write {name}={value} where these are made")
        else:
            added.append(f"{name}={value}")
    return [*edits, *(_appended(source, call, added) if added else ())]


def _written(call: ast.Call, name: str, positions: Sequence[str]) -> ast.expr | None:
    """The value of an argument, as it is written in the call; None where it is not."""
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    place = positions.index(name) if name in positions else len(call.args)
    before = call.args[: place + 1]
    if len(before) <= place or any(isinstance(one, ast.Starred) for one in before):
        return None
    return before[place]


def _appended(source: Source, call: ast.Call, added: Sequence[str]) -> list[Edit]:
    end = source.span(call)[1] - 1  # the closing bracket
    arguments = sorted(source.span(one) for one in (*call.args, *call.keywords))
    if not arguments:
        return [Edit(end, end, ", ".join(added))]
    (only, *others), lone = call.args or [None], len(call.args) == 1 and not call.keywords
    if lone and not others and isinstance(only, ast.GeneratorExp) and source.span(only)[1] == end + 1:
        start = source.span(only)[0]
        return [Edit(start, start, "("), Edit(end, end, f"), {', '.join(added)}")]
    last, comma = _tail(source.bytes, arguments[-1][1], end)
    if comma is None and not _own_line(source, arguments[-1][0], end):
        return [Edit(last, last, "".join(f", {one}" for one in added))]
    if comma is not None and source.line_end(comma) >= end:
        return [Edit(comma, comma, "".join(f" {one}," for one in added))]
    place, indent = source.line_end(last), _indent_of_line(source, arguments[-1][0])
    ends = [f"{one}," for one in added] if comma is not None else _joined(added)
    lines = "".join(f"{source.newline}{indent}{one}" for one in ends)
    return [*([] if comma is not None else [Edit(last, last, ",")]), Edit(place, place, lines)]


def _joined(added: Sequence[str]) -> list[str]:
    return [*(f"{one}," for one in added[:-1]), added[-1]]


def _tail(text: bytes, at: int, end: int) -> tuple[int, int | None]:
    """Where the last argument ends, its own brackets included, and where the comma after it, if there is one.

    A column of a nested node does not count the brackets around it.
    """
    last = at
    while at < end:
        if skipped := _CLOSER.match(text, at, end):
            at = skipped.end()
        elif text[at : at + 1] == b",":
            return last, at + 1
        else:  # a bracket around the argument
            at = last = at + 1
    return last, None


def _own_line(source: Source, start: int, end: int) -> bool:
    """Whether an argument begins its line, and the call ends in a later one."""
    before = source.bytes[:start].replace(b"\r", b"\n").rpartition(b"\n")[2]
    return not before.strip(b" \t(") and source.line_end(start) < end and bool(before)


def _indent_of_line(source: Source, start: int) -> str:
    before = source.bytes[:start].replace(b"\r", b"\n").rpartition(b"\n")[2]
    return before[: len(before) - len(before.lstrip(b" \t"))].decode()
