"""Finds the quick test files that stand nearest to a source: those that one would run after a change."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

PACKAGES = ("perfsweep", "pipelines", "workloads", "slurm")
FEWEST, MOST = 3, 5


def sources(root: Path) -> list[Path]:
    """Every module of the packages, without those that only hold a package together."""
    found = [path for name in PACKAGES for path in (root / name).rglob("*.py")]
    return [path for path in found if path.read_text().strip() and path.name != "__init__.py"]


def quick_files(root: Path) -> list[Path]:
    """Test files that hold a quick test, by what stands in them: to collect all takes half a minute."""
    return [path for path in sorted((root / "tests").rglob("test_*.py")) if holds_quick(path)]


def holds_quick(path: Path) -> bool:
    """Whether neither the module nor each of its tests is marked for a longer tier."""
    body = ast.parse(path.read_text()).body
    if any(isinstance(node, ast.Assign) and is_longer(node.value) for node in body):  # pytestmark
        return False
    tests = [node for node in body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]
    return any(not any(map(is_longer, test.decorator_list)) for test in tests)


def is_longer(mark: ast.expr) -> bool:
    """Whether it puts a test as a whole, not one of its parameters, into a longer tier."""
    return bool(re.match(r"\[?(.*, )?pytest\.mark\.(slow|workloads)\b", ast.unparse(mark))) and (
        "parametrize" not in ast.unparse(mark)
    )


class Nearest:
    """Test files by their distance in imports from a source.

    Args:
        root: Root of the project, whose packages are mirrored under tests.
        tests: Test files to choose from, absolute.
    """

    def __init__(self, root: Path, tests: Sequence[Path]) -> None:
        self.root = root
        self.tests = sorted(tests)
        modules = [*(path for name in PACKAGES for path in (root / name).rglob("*.py")), *self.tests]
        modules += (root / "tests/support").rglob("*.py")
        names = {dotted(root, path): path for path in modules}
        self.users: dict[Path, set[Path]] = {}
        for path in modules:
            for name in imported(path):
                if name in names and names[name] != path:
                    self.users.setdefault(names[name], set()).add(path)

    def of(self, source: Path) -> list[Path]:
        """The mirrored file and those that import the source, then its users' ones, until there are some.

        Returns:
            At most `MOST` files: the mirrored one first, then those of the mirrored folder, then others; of
            equally distant ones those come first that import least.
        """
        folder = self.root / "tests" / source.parent.relative_to(self.root)
        mirrored = folder / f"test_{source.stem}.py"
        found = [mirrored] if mirrored in self.tests else []
        seen, ring = {source}, {source}
        while ring and len(found) < FEWEST:
            ring = {user for path in ring for user in self.users.get(path, ())} - seen
            seen |= ring
            new = ring & set(self.tests) - set(found)
            found += sorted(new, key=lambda path: (folder not in path.parents, len(imported(path)), path))
        found = found or [path for path in self.tests if names(path, source.stem, folder)]
        return found[:MOST]


def names(test: Path, stem: str, folder: Path) -> bool:
    """Whether a test of the mirrored folder speaks of a module that is imported by its name at run time."""
    return test.parent == folder and re.search(rf"\b{stem}\b", test.read_text()) is not None


def dotted(root: Path, path: Path) -> str:
    """The name under which the module is imported; support modules of tests stand on the path themselves."""
    parts = path.relative_to(root).with_suffix("").parts
    if parts[:2] == ("tests", "support"):
        parts = parts[2:]
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
