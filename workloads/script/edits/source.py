"""A source file as text and tree: where its nodes are, and what it is with some pieces replaced.

Columns are those of Python: bytes of UTF-8 in a line, whatever the file's encoding is.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

_LINE_END = re.compile(rb"\r\n|\r|\n")


class NoEdit(Exception):
    """Why a piece of source cannot be edited; the message continues a sentence about a line."""


@dataclass(frozen=True, order=True)
class Edit:
    """Replaces the bytes from `start` to `end`, counted in UTF-8 from the start of the file."""

    start: int
    end: int
    text: str


class Source:
    """A file of Python.

    Raises
    ------
    NoEdit
        It is none.
    """

    def __init__(self, data: bytes) -> None:
        try:
            self._encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
            text = data.decode(self._encoding)
            self.tree = ast.parse(text)  # of text: the encoding that a first line may name is undone
        except (SyntaxError, ValueError) as error:
            raise NoEdit(f"is no Python: {error}") from error
        self.bytes = text.encode()
        self._starts = [0, *(match.end() for match in _LINE_END.finditer(self.bytes))]
        first = _LINE_END.search(self.bytes)
        self.newline = first[0].decode() if first else "\n"

    def offset(self, line: int, column: int) -> int:
        """Bytes before a place."""
        return self._starts[line - 1] + column

    def span(self, node: ast.expr | ast.stmt | ast.keyword) -> tuple[int, int]:
        """Where a node begins and ends."""
        assert node.end_lineno is not None and node.end_col_offset is not None
        return (self.offset(node.lineno, node.col_offset), self.offset(node.end_lineno, node.end_col_offset))

    def text(self, node: ast.expr | ast.stmt | ast.keyword) -> str:
        """A node as it is written."""
        start, end = self.span(node)
        return self.bytes[start:end].decode()

    @cached_property
    def parents(self) -> dict[ast.AST, ast.AST]:
        """The node around each node."""
        return {child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)}

    def around(self, node: ast.AST) -> Iterator[ast.AST]:
        """The nodes around a node, the innermost first."""
        while (above := self.parents.get(node)) is not None:
            yield above
            node = above

    def call(self, line: int, end: tuple[int, int] | None) -> ast.Call:
        """The call that ends at a place; where no place is known, the only one that begins in a line.

        Raises
        ------
        NoEdit
            It is not found, or several may be meant.
        """
        calls = [node for node in ast.walk(self.tree) if isinstance(node, ast.Call)]
        if end is not None:
            found = [node for node in calls if (node.end_lineno, node.end_col_offset) == tuple(end)]
        else:
            found = [node for node in calls if node.lineno == line]
        if not found:
            raise NoEdit("has no call where one was seen; the file may have changed")
        if len(found) > 1:
            raise NoEdit("has several calls, and which is meant is not known; write one in a line")
        if any(isinstance(node, ast.JoinedStr) for node in self.around(found[0])):
            raise NoEdit("makes the call inside an f-string; take it out of there")
        return found[0]

    def statement(self, node: ast.AST) -> ast.stmt:
        """The innermost statement that a node belongs to."""
        if isinstance(node, ast.stmt):
            return node
        return next(one for one in self.around(node) if isinstance(one, ast.stmt))

    def blocks(self, statement: ast.stmt) -> Iterator[tuple[list[ast.stmt], ast.stmt]]:
        """The blocks around a statement, the innermost first, each with the statement of it that leads there.

        They end with the body of the function, the class or the module.
        """
        inner = statement
        for above in self.around(statement):
            for _, values in ast.iter_fields(above):
                if isinstance(values, list) and inner in values:
                    yield values, inner
            if isinstance(above, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                return
            if isinstance(above, ast.stmt):
                inner = above

    def indentation(self, statement: ast.stmt) -> str:
        """The white space before a statement.

        Raises
        ------
        NoEdit
            Something else is before it in its line.
        """
        decorators = getattr(statement, "decorator_list", [])
        line = self.bytes[self.line_start(min(one.lineno for one in (*decorators, statement))) :]
        before = line[: len(line) - len(line.lstrip(b" \t\f"))]
        if not decorators and len(before) != statement.col_offset:
            raise NoEdit("has something before the statement in the same line; give it a line of its own")
        return before.decode()

    def line_end(self, offset: int) -> int:
        """Where the line of a place ends, before its line break."""
        found = _LINE_END.search(self.bytes, offset)
        return found.start() if found else len(self.bytes)

    def line_start(self, line: int) -> int:
        """Where a line begins."""
        return self._starts[line - 1]

    @cached_property
    def step(self) -> str:
        """What a block is indented by."""
        for node in ast.walk(self.tree):
            body = getattr(node, "body", None)
            if isinstance(body, list) and body and isinstance(node, ast.stmt):
                outer, inner = node.col_offset, body[0].col_offset
                line = self.bytes[self._starts[body[0].lineno - 1] :]
                if body[0].lineno > node.lineno and inner > outer and not line[:inner].strip(b" \t"):
                    return line[outer:inner].decode()
        return "    "

    def edited(self, edits: Iterable[Edit]) -> bytes:
        """The file with pieces replaced; what is put into one place comes in the order of `edits`.

        Raises
        ------
        NoEdit
            Two edits overlap, or the result is no Python.
        """
        pieces, at = list[bytes](), 0
        for edit in sorted(dict.fromkeys(edits), key=lambda one: (one.start, one.end)):
            if edit.start < at:
                raise NoEdit("would be changed twice in one place")
            pieces += [self.bytes[at : edit.start], edit.text.encode()]
            at = edit.end
        whole = b"".join([*pieces, self.bytes[at:]])
        try:
            ast.parse(whole.decode())
        except SyntaxError as error:
            raise NoEdit(f"would be no Python any more: {error.msg}") from error
        return whole.decode().encode(self._encoding)
