"""Finds where small mistakes can be planted in a Python source, and plants one.

cosmic-ray brings the operators (comparisons, numbers, arithmetic, booleans, exceptions, loops) as a library:
a mutant is a pair of operator and occurrence over a parso tree, applied to a text, so that which tests judge
it and in which copy is ours to say. mutmut was looked at too: it renames every function of a package and asks
for the whole suite in one process, which tests that fork servers and submit jobs do not bear. What people get
wrong and neither has stands here: an argument or a statement left out, a condition that always holds.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.operators.operator import Operator
from cosmic_ray.plugins import get_operator, operator_names


@dataclass(frozen=True)
class Mutant:
    """One planted mistake.

    Args:
        path: Source, relative to the root of the project.
        line: Its line, from one.
        before: The line as it stands, without indentation.
        after: The line with the mistake; empty if it is gone.
        operator: What was done to it.
        text: The whole source with the mistake.
    """

    path: str
    line: int
    before: str
    after: str
    operator: str
    text: str

    @property
    def key(self) -> str:
        """What names the mutant for as long as its line does not change."""
        return f"{self.path}: {self.before} -> {self.after}"


class LeaveOutArgument(Operator):
    """A keyword argument that is not given: its default, or a missing one, takes its place."""

    def mutation_positions(self, node: Any) -> Iterator:
        if node.type == "argument" and len(node.children) == 3 and node.children[1] == "=":
            yield node.start_pos, node.end_pos

    def mutate(self, node: Any, index: int) -> Any:
        return leaf(node, get_ast("f(**{})").children[0].children[1].children[1])

    @classmethod
    def examples(cls) -> tuple:
        return ()


class LeaveOutStatement(Operator):
    """A call whose value nobody takes, or a raise, that does not happen."""

    def mutation_positions(self, node: Any) -> Iterator:
        call = node.type in ("atom_expr", "raise_stmt") and node.parent.type == "simple_stmt"
        if call:
            yield node.start_pos, node.end_pos

    def mutate(self, node: Any, index: int) -> Any:
        return leaf(node, get_ast("pass").children[0])

    @classmethod
    def examples(cls) -> tuple:
        return ()


class AlwaysTrue(Operator):
    """A guard that lets everything through: the condition of an `if` or of a conditional expression."""

    def mutation_positions(self, node: Any) -> Iterator:
        parent = node.parent
        if parent is None or node.type in ("operator", "keyword"):
            return
        of_statement = parent.type == "if_stmt" and _before(parent, node) in ("if", "elif")
        of_expression = parent.type == "ternary" and _before(parent, node) == "if"
        if of_statement or of_expression:
            yield node.start_pos, node.end_pos

    def mutate(self, node: Any, index: int) -> Any:
        return leaf(node, get_ast("True").children[0])

    @classmethod
    def examples(cls) -> tuple:
        return ()


def leaf(node: Any, new: Any) -> Any:
    """The new tree in the place of `node`, with the blanks before it."""
    new.get_first_leaf().prefix = node.get_first_leaf().prefix
    return new


def _before(parent: Any, node: Any) -> str:
    place = parent.children.index(node)
    return str(getattr(parent.children[place - 1], "value", "")) if place else ""


def operators() -> dict[str, Any]:
    """Every operator that needs no arguments of its own, by a short name."""
    known = {name: get_operator(name) for name in operator_names()}
    theirs = {
        name.removeprefix("core/"): cls()
        for name, cls in known.items()
        if not cls.arguments() and "NoOp" not in name and "RemoveDecorator" not in name
    }
    ours = {cls.__name__: cls() for cls in (LeaveOutArgument, LeaveOutStatement, AlwaysTrue)}
    return theirs | ours


def sample(root: Path, sources: Sequence[Path], count: int, seed: int) -> list[Mutant]:
    """Draws mutants: a source by its lines, one of its places, and one operator of those that fit there.

    Only sources that are drawn are parsed: that takes a second for every thousand lines.

    Args:
        root: Root of the project.
        sources: Files, absolute.
        count: How many.
        seed: Equal seeds draw equal mutants from equal sources.

    Returns:
        At most `count` mutants in the order drawn; a line may be drawn twice, a place is not.
    """
    known, draw = operators(), random.Random(seed)
    lines = {path: len(path.read_text().splitlines()) for path in sorted(sources)}
    places: dict[Path, list[list[tuple[str, int]]]] = {}
    found: dict[str, Mutant] = {}
    while lines and len(found) < count:
        path = draw.choices(list(lines), list(lines.values()))[0]
        if path not in places:
            places[path] = list(places_of(path, known).values())
        left = places[path]
        if not left:
            del lines[path]
            continue
        name, occurrence = draw.choice(left.pop(draw.randrange(len(left))))
        mutant = planted(root, path, name, known[name], occurrence)
        if mutant is not None and not is_guard(mutant):
            found.setdefault(mutant.path + mutant.text, mutant)
    return list(found.values())


def is_guard(mutant: Mutant) -> bool:
    """Whether it only takes the `strict` from a `zip` of what is equally long: nobody could see that."""
    kept = mutant.before.replace("strict=True", "")
    return kept != mutant.before and kept in (
        mutant.after.replace("strict=False", ""),
        mutant.after.replace("**{}", ""),
    )


def places_of(path: Path, known: dict[str, Operator]) -> dict[tuple, list[tuple[str, int]]]:
    """Places of a source (start, end) with the operators that fit there and their occurrence in it."""
    nodes = list(ast_nodes(get_ast(path.read_text())))
    found: dict[tuple, list[tuple[str, int]]] = {}
    for name, operator in known.items():
        positions = ((node, place) for node in nodes for place in operator.mutation_positions(node) or ())
        for occurrence, (node, place) in enumerate(positions):
            if not is_silent(node):
                found.setdefault(place, []).append((name, occurrence))
    return found


def is_silent(node: Any) -> bool:
    """Whether it stands in a decorator (frozen, slots), or in an annotation, which nothing evaluates."""
    child, parent = node, node.parent
    while parent is not None:
        if parent.type in ("tfpdef", "decorator") or (
            parent.type == "annassign" and parent.children[1] is child
        ):
            return True
        if parent.type == "funcdef" and _before(parent, child) == "->":
            return True
        child, parent = parent, parent.parent
    return False


def planted(root: Path, path: Path, name: str, operator: Operator, occurrence: int) -> Mutant | None:
    """The mutant of one occurrence; None where nothing changes or the result is no Python."""
    text = path.read_text()
    mutated = mutate_code(text, operator, occurrence)
    if mutated is None or mutated == text or not compiles(mutated):
        return None
    old, new = text.splitlines(), mutated.splitlines()
    line = next((at for at, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), len(new) - 1)
    return Mutant(str(path.relative_to(root)), line + 1, old[line].strip(), new[line].strip(), name, mutated)


def compiles(text: str) -> bool:
    """Whether the text is Python at all; what is not would be noticed by anybody."""
    with warnings.catch_warnings(action="ignore"):  # such as `is` beside a literal
        try:
            compile(text, "mutant", "exec")
        except SyntaxError:
            return False
    return True
