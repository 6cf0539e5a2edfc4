"""Pieces of source that are edited: arguments of a call, lines before or after a statement, imports."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Collection, Iterator, Mapping, Sequence

from perfsweep.workloads.script.edits.source import Edit, NoEdit, Source

Function = ast.FunctionDef | ast.AsyncFunctionDef
Scope = ast.Module | Function


def line_after(source: Source, statement: ast.stmt, text: str) -> Edit:
    """A line of its own after a statement, in the same block."""
    indent = source.indentation(statement)
    end = source.line_end(source.span(statement)[1])
    return Edit(end, end, f"{source.newline}{indent}{text}")


def line_before(source: Source, statement: ast.stmt, text: str) -> Edit:
    """A line of its own before a statement, in the same block."""
    indent = source.indentation(statement)
    decorators = getattr(statement, "decorator_list", [])
    start = source.line_start(min(one.lineno for one in (*decorators, statement)))
    return Edit(start, start, f"{indent}{text}{source.newline}")


_SIMPLE = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr, ast.Return)


def inside(source: Source, statement: ast.stmt, manager: str) -> list[Edit]:
    """A statement as the body of ``with manager:``.

    Raises
    ------
    NoEdit
        It is no simple one, or its lines cannot be indented.
    """
    if not isinstance(statement, _SIMPLE):
        raise NoEdit("makes the call in the head of a block; give the result a name in a line before it")
    indent, (start, end) = source.indentation(statement), source.span(statement)
    if source.bytes[end : source.line_end(end)].split(b"#")[0].strip():
        raise NoEdit("has another statement in the same line; give it a line of its own")
    first, last = statement.lineno, statement.end_lineno or statement.lineno
    if _in_strings(source, first, last):
        raise NoEdit("has a text of several lines in the statement; give that a name in a line before it")
    head = f"with {manager}:{source.newline}{indent}{source.step}"
    later = [source.line_start(line) for line in range(first + 1, last + 1)]
    filled = [at for at in later if source.line_end(at) > at]
    return [Edit(start, start, head), *(Edit(at, at, source.step) for at in filled)]


def _in_strings(source: Source, first: int, last: int) -> bool:
    """Whether a text goes on from one of some lines to the next."""
    read = io.StringIO(source.bytes.decode()).readline
    tokens = tokenize.generate_tokens(read)
    return any(
        token.start[0] < token.end[0] and token.start[0] <= last and token.end[0] > first
        for token in tokens
        if token.type in _TEXTS
    )


_TEXTS = {tokenize.STRING, *(getattr(tokenize, name, tokenize.STRING) for name in ("FSTRING_MIDDLE",))}


def imported(source: Source, module: str) -> tuple[str, list[Edit]]:
    """The name that a module has at the top of a file, with the line that imports it where none does."""
    for one in source.tree.body:
        if isinstance(one, ast.Import):
            for alias in one.names:
                if alias.name == module and (alias.asname or "." not in module):
                    return alias.asname or module, []
    return module, [_at_top(source, f"import {module}")]


def _at_top(source: Source, text: str) -> Edit:
    """A line after the first imports, else before the first statement that is no docstring."""
    body = source.tree.body
    last = None
    for one in body:
        if isinstance(one, ast.Import | ast.ImportFrom) or (last is None and _is_docstring(one)):
            last = one
        else:
            break
    return line_after(source, last, text) if last else line_before(source, body[0], text)


def after_imports(source: Source, text: str) -> Edit:
    """A line after the last import at the top of a file, before what else happens there."""
    imports = [one for one in source.tree.body if isinstance(one, ast.Import | ast.ImportFrom)]
    if imports:
        return line_after(source, imports[-1], text)
    return _at_top(source, text)


def _is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def scope_at(source: Source, line: int) -> Scope:
    """The function that begins in a line, as its code names it; the module at line 0 or where none does."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            firsts = [node.lineno, *(one.lineno for one in node.decorator_list)]
            if min(firsts) == line:
                return node
    return source.tree


def assigned(source: Source, scope: ast.AST, name: str, line: int | None = None) -> ast.stmt | None:
    """Where a name has its value for good: the statement after which it may be used, before a line.

    Of a value that is assigned in one branch of several, all that is around the branches is the statement.

    Parameters
    ----------
    name : ``model`` in a function or module, or ``self.model`` anywhere in a class
    line : that uses it; None: it is used elsewhere
    """
    found = [one for one in _assignments(scope, name) if line is None or (one.end_lineno or 0) < line]
    if not found:
        return None
    last = max(found, key=lambda one: one.lineno)
    outermost = last
    for block, inner in source.blocks(last):
        holds = line is not None and any(one.lineno <= line <= (one.end_lineno or 0) for one in block)
        outermost = inner
        if holds:
            break
    return outermost


def _assignments(scope: ast.AST, name: str) -> Iterator[ast.stmt]:
    for node in _within(scope, classes="." in name):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if isinstance(node, ast.Assign | ast.AnnAssign) and getattr(node, "value", None) is not None:
            names = (ast.unparse(inner) for one in targets if one for inner in ast.walk(one) if _named(inner))
            if name in names:
                yield node


def _named(node: ast.AST) -> bool:
    return isinstance(node, ast.Name | ast.Attribute)


def _within(scope: ast.AST, classes: bool) -> Iterator[ast.AST]:
    """All nodes of a scope, without those of functions and classes inside; with them for attributes."""
    inner = () if classes else (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
    for child in ast.iter_child_nodes(scope):
        yield child
        if not isinstance(child, inner):
            yield from _within(child, classes)


def outermost_loop(source: Source, scope: Scope, line: int) -> ast.stmt | None:
    """The outermost loop of a scope that a line lies in."""
    loops = [
        node
        for node in _within(scope, classes=False)
        if isinstance(node, ast.For | ast.While) and node.lineno <= line <= (node.end_lineno or 0)
    ]
    return min(loops, key=lambda one: one.lineno, default=None)


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
