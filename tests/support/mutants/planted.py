"""Where small mistakes can be planted in a Python source: a sample of such mutants.

cosmic-ray brings the operators (comparisons, numbers, arithmetic, booleans, exceptions, loops). What people
get wrong and it lacks is here: an argument or a statement left out, a condition that always holds.
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
    """A planted mistake: the line before and after it, without indentation, and the whole source with it."""

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


class Replaced(Operator):
    """An operator that puts other code in the place of a node."""

    code: Any

    def mutate(self, node: Any, index: int) -> Any:
        new = get_ast(self.code).children[0]
        new = new.children[1].children[1] if self.code == "f(**{})" else new
        new.get_first_leaf().prefix = node.get_first_leaf().prefix  # the blanks before it
        return new

    def mutation_positions(self, node: Any) -> Iterator:
        if self.fits(node):
            yield node.start_pos, node.end_pos

    @staticmethod
    def fits(node: Any) -> bool:
        """Whether it may be replaced."""
        raise NotImplementedError

    @classmethod
    def examples(cls) -> tuple:
        return ()


class LeaveOutArgument(Replaced):
    """A keyword argument that is not given: its default, or a missing one, takes its place."""

    code = "f(**{})"

    @staticmethod
    def fits(node: Any) -> bool:
        return node.type == "argument" and len(node.children) == 3 and node.children[1] == "="


class LeaveOutStatement(Replaced):
    """A call whose value is not used, or a raise, that does not happen."""

    code = "pass"

    @staticmethod
    def fits(node: Any) -> bool:
        return node.type in ("atom_expr", "raise_stmt") and node.parent.type == "simple_stmt"


class AlwaysTrue(Replaced):
    """A guard that lets everything through: the condition of an `if` or of a conditional expression."""

    code = "True"

    @staticmethod
    def fits(node: Any) -> bool:
        if node.parent is None or node.parent.type not in ("if_stmt", "ternary"):
            return False
        return node.type not in ("operator", "keyword") and _word_before(node) in ("if", "elif")


def _word_before(node: Any) -> str:
    place = node.parent.children.index(node)
    return getattr(node.parent.children[place - 1], "value", "") if place else ""


def _operators() -> dict[str, Operator]:
    theirs: dict[str, Any] = {name.removeprefix("core/"): get_operator(name) for name in operator_names()}
    usable = {name: one() for name, one in theirs.items() if not one.arguments() and "NoOp" not in name}
    return usable | {one.__name__: one() for one in (LeaveOutArgument, LeaveOutStatement, AlwaysTrue)}


def _is_silent(node: Any) -> bool:
    """Whether no result shows it: of a decorator (frozen, slots), an annotation, or the `strict` of a zip."""
    while node.parent is not None:
        of_annotation = node.parent.type == "annassign" and node.parent.children[1] is node
        strict = node.type == "argument" and getattr(node.children[0], "value", "") == "strict"
        if of_annotation or strict or node.type in ("tfpdef", "decorator") or _word_before(node) == "->":
            return True
        node = node.parent
    return False


def sample(root: Path, sources: Sequence[Path], count: int, seed: int) -> list[Mutant]:
    """Draw mutants: a source by its lines, then one of its places, then one of the operators that fit there.

    Equal seeds draw equal mutants from equal sources; only sources that are drawn are parsed, which takes a
    second for every thousand lines. There are at most `count`, and no place is drawn twice.
    """
    known, draw = _operators(), random.Random(seed)
    lines = {path: len(path.read_text().splitlines()) for path in sorted(sources)}
    places: dict[Path, list[list[tuple[str, int]]]] = {}
    found: dict[str, Mutant] = {}
    while lines and len(found) < count:
        path = draw.choices(list(lines), list(lines.values()))[0]
        if path not in places:
            places[path] = _places(path, known)
        if not places[path]:
            del lines[path]
            continue
        name, occurrence = draw.choice(places[path].pop(draw.randrange(len(places[path]))))
        text = path.read_text()
        mutated = mutate_code(text, known[name], occurrence) or text
        if mutated == text or not _compiles(mutated):
            continue
        old, new = text.splitlines(), mutated.splitlines()
        at = next((at for at, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), len(new) - 1)
        one = Mutant(str(path.relative_to(root)), at + 1, old[at].strip(), new[at].strip(), name, mutated)
        found.setdefault(one.path + one.text, one)
    return list(found.values())


def _places(path: Path, known: dict[str, Operator]) -> list[list[tuple[str, int]]]:
    """Of each place of a source the operators that fit there, with their occurrence in it."""
    nodes = list(ast_nodes(get_ast(path.read_text())))
    found: dict[tuple, list[tuple[str, int]]] = {}
    for name, operator in known.items():
        positions = ((node, place) for node in nodes for place in operator.mutation_positions(node) or ())
        for occurrence, (node, place) in enumerate(positions):
            if not _is_silent(node):
                found.setdefault(place, []).append((name, occurrence))
    return list(found.values())


def _compiles(text: str) -> bool:
    with warnings.catch_warnings(action="ignore"):  # such as `is` with a literal
        try:
            compile(text, "mutant", "exec")
        except SyntaxError:
            return False
    return True
