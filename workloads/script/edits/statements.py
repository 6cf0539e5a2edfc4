"""Statements: lines put before or after one, one put into a ``with``, an import that is missing."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator

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
