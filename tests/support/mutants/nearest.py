"""Finds the test files that stand nearest to a source: those that one would run after a change."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

PACKAGES = ("src", "pipelines", "workloads", "slurm")
FEWEST, MOST = 3, 5


def sources(root: Path) -> list[Path]:
    """Every module of the packages, without those that only hold a package together."""
    found = [path for name in PACKAGES for path in (root / name).rglob("*.py")]
    return [path for path in found if path.read_text().strip() and path.name != "__init__.py"]


def quick_files(root: Path) -> list[Path]:
    """Test files that hold a quick test, by what stands in them: to collect all takes half a minute."""
    return [path for path in files_of_tests(root) if holds_quick(path)]


def longer_files(root: Path) -> list[Path]:
    """Test files that speak of a longer tier."""
    return [path for path in files_of_tests(root) if {"slow", "workloads"} & words(path)]


def files_of_tests(root: Path) -> list[Path]:
    """All of them, in order."""
    return sorted((root / "tests").rglob("test_*.py"))


def holds_quick(path: Path) -> bool:
    """Whether neither the module nor each of its tests is marked for a longer tier, or for a GPU."""
    body = ast.parse(path.read_text()).body
    if any(isinstance(node, ast.Assign) and is_longer(node.value) for node in body):  # pytestmark
        return False
    tests = [node for node in body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]
    return any(not any(map(is_longer, test.decorator_list)) for test in tests)


def is_longer(mark: ast.expr) -> bool:
    """Whether it puts a test as a whole, not one of its parameters, into a longer tier."""
    return bool(re.match(r"\[?(.*, )?pytest\.mark\.(slow|workloads|gpu)\b", ast.unparse(mark))) and (
        "parametrize" not in ast.unparse(mark)
    )


class Nearest:
    """Test files by their distance in imports from a source.

    What the fixtures of a `conftest.py`, or a support module, import counts as imported by the tests.

    Args:
        root: Root of the project, whose packages are mirrored under tests.
        tests: Test files to choose from, absolute.
        fewest, most: How many are to be found for a source, where there are so many.
    """

    def __init__(self, root: Path, tests: Sequence[Path], fewest: int = FEWEST, most: int = MOST) -> None:
        self.root, self.fewest, self.most = root, fewest, most
        self.tests = sorted(tests)
        self.names = {dotted(root, path): path for name in PACKAGES for path in (root / name).rglob("*.py")}
        self.support = {dotted(root, path): path for path in (root / "tests/support").rglob("*.py")}
        self.users: dict[Path, set[Path]] = {}
        for path in (*self.names.values(), *self.tests):
            brought = self.brought(path) if path in self.tests else []
            said = [dotted_words(path)] if path in self.tests else []  # code that a test runs in a process
            for name in frozenset().union(*said, *map(imported, [path, *brought])) & set(self.names):
                if self.names[name] != path:
                    self.users.setdefault(self.names[name], set()).add(path)

    def brought(self, test: Path) -> list[Path]:
        """The conftest files of a test, without that of all tests, and the support modules it imports."""
        folders = [self.root / "tests" / folder for folder in test.relative_to(self.root / "tests").parents]
        fixtures = [folder / "conftest.py" for folder in folders[:-1] if (folder / "conftest.py").exists()]
        return [*fixtures, *(self.support[name] for name in imported(test) & set(self.support))]

    def of(self, source: Path) -> list[Path]:
        """The mirrored file and those that import the source, then its users' ones, until there are some.

        Returns:
            At most `most` files: the mirrored one first; of equally distant ones those that name most of what
            stands in the source, then those of the mirrored folder, then those that import least.
        """
        parts = source.parent.relative_to(self.root).parts
        folder = self.root.joinpath("tests", *(part for part in parts if part != "src"))
        mirrored = folder / f"test_{source.stem}.py"
        found = [mirrored] if mirrored in self.tests else []
        said = {source.stem, *defined(source)}
        seen, ring = {source}, {source}
        while ring and len(found) < self.fewest:
            ring = {user for path in ring for user in self.users.get(path, ())} - seen
            seen |= ring
            found += sorted(
                ring & set(self.tests) - set(found), key=lambda test: self._order(test, folder, said)
            )
        found = found or [path for path in self.tests if names(path, source.stem, folder)]
        return found[: self.most]

    @staticmethod
    def _order(test: Path, folder: Path, said: set[str]) -> tuple:
        return -len(said & words(test)), folder not in test.parents, len(imported(test)), test


def defined(path: Path) -> set[str]:
    """Names that stand at the top of a module: functions, classes and constants."""
    found = set[str]()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return found


@cache
def dotted_words(path: Path) -> frozenset[str]:
    """Every dotted word of a file, in texts too."""
    return frozenset(re.findall(r"\w+(?:\.\w+)+", path.read_text()))


@cache
def words(path: Path) -> frozenset[str]:
    """Every word of a file."""
    return frozenset(re.findall(r"\w+", path.read_text()))


def names(test: Path, stem: str, folder: Path) -> bool:
    """Whether a test of the mirrored folder speaks of a module that is imported by its name at run time."""
    return test.parent == folder and re.search(rf"\b{stem}\b", test.read_text()) is not None


def dotted(root: Path, path: Path) -> str:
    """The name under which the module is imported; support modules of tests stand on the path themselves."""
    parts = path.relative_to(root).with_suffix("").parts
    if parts[:2] == ("tests", "support"):
        parts = parts[2:]
    elif parts[0] != "tests":
        parts = parts[1:] if parts[0] == "src" else ("perfsweep", *parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def imported(path: Path) -> frozenset[str]:
    """Names of all modules that the file may import, those inside functions too."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return frozenset(names)
