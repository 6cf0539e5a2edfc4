"""Whether a script reads its own source: a patch would change what it reads."""

from __future__ import annotations

import ast

from perfsweep.workloads.script.edits.source import NoEdit, Source

_READERS = frozenset(("open", "getsource", "getsourcelines", "read_text", "read_bytes", "fileinput"))
_FOLDERS = frozenset(("parent", "parents", "dirname", "with_name", "with_suffix", "joinpath", "stem", "name"))
"""What makes of the script's path another one."""


def line_that_reads(data: bytes) -> int:
    """The line that reads the source of the script itself, or of its functions; 0 where none is seen."""
    try:
        tree = Source(data).tree
    except NoEdit:
        return 0
    names = {"__file__", *_named_paths(tree)}
    reads = [node.lineno for node in ast.walk(tree) if isinstance(node, ast.Call) and _reads(node, names)]
    return min(reads, default=0)


def _named_paths(tree: ast.AST) -> set[str]:
    """Names that are given the path of the script."""
    found = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and _is_path(node.value, {"__file__"}):
            found |= {one.id for one in node.targets if isinstance(one, ast.Name)}
    return found


def _reads(call: ast.Call, names: set[str]) -> bool:
    function = call.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    if name not in _READERS:
        return False
    if name.startswith("getsource"):
        return True
    of = [*call.args[:1], *([function.value] if isinstance(function, ast.Attribute) else [])]
    return any(_is_path(one, names) for one in of)


def _is_path(node: ast.AST, names: set[str]) -> bool:
    """Whether an expression is the script's path: its name, or what keeps a path the same around it."""
    if isinstance(node, ast.Name):
        return node.id in names
    if isinstance(node, ast.Attribute):
        return node.attr not in _FOLDERS and _is_path(node.value, names)
    if isinstance(node, ast.Call):
        return _is_path(node.func, names) or (
            _called(node) not in _FOLDERS and any(_is_path(one, names) for one in node.args)
        )
    return False


def _called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
