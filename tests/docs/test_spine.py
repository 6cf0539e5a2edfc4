"""The spine can be read in one go, and the page that lists it is true; no folder hides folders."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
from documented import ROOT

MOST_MODULES, MOST_LINES = 17, 3500
MOST_IN_A_FOLDER = 20
MOST_LOADED = 80

PAGE = (ROOT / "docs" / "architecture.md").read_text()
SPINE = re.findall(r"^\| \[([\w/.]+)\]\(.*?\) \|", PAGE, re.MULTILINE)
SOURCES = ROOT / "src" / "perfsweep"


def modules() -> dict[str, Path]:
    """Every module that is imported under perfsweep, by its name."""
    found = {}
    for place, folders, names in os.walk(SOURCES, followlinks=True):
        folders[:] = [name for name in folders if name not in ("__pycache__", "templates")]
        for file in (Path(place, name) for name in names if name.endswith(".py")):
            parts = ("perfsweep", *file.relative_to(SOURCES).with_suffix("").parts)
            found[".".join(parts).removesuffix(".__init__")] = file
    return found


MODULES = modules()


def module_of(file: str) -> str:
    """The name by which a file of the page is imported."""
    path = (ROOT / file).resolve()
    return next(name for name, own in MODULES.items() if own.resolve() == path)


@cache
def named_in(module: str) -> frozenset[str]:
    """Modules that a module imports anywhere, and commands that the catalog names."""
    named = set()
    for node in ast.walk(ast.parse(MODULES[module].read_text())):
        if isinstance(node, ast.ImportFrom):
            named |= {str(node.module), *(f"{node.module}.{one.name}" for one in node.names)}
        elif isinstance(node, ast.Import):
            named |= {one.name for one in node.names}
        elif isinstance(node, ast.Constant) and re.fullmatch(r"\w+:\w+", str(node.value)):
            named.add(f"perfsweep.pipelines.commands.{str(node.value).partition(':')[0]}")
    return frozenset(named & MODULES.keys())


def reached_from(starts: list[str]) -> set[str]:
    """All modules that are imported by some, and by those that they import."""
    found, left = set[str](), list(starts)
    while left:
        if (module := left.pop()) not in found:
            found.add(module)
            left += named_in(module)
    return found


def lines_of(file: str) -> int:
    """Lines of a file of the page."""
    return len((ROOT / file).read_text().splitlines())


def test_the_spine_can_be_read_in_one_go() -> None:
    assert len(set(SPINE)) == len(SPINE) and 12 <= len(SPINE) <= MOST_MODULES
    assert f"Read these {len(SPINE)} modules" in PAGE and f"{MOST_LINES:,} lines" in PAGE
    assert sum(map(lines_of, SPINE)) <= MOST_LINES


def test_the_spine_goes_from_the_command_line_to_the_table() -> None:
    assert SPINE[0] == "src/perfsweep/__main__.py" and SPINE[-1] == "pipelines/report/terminal_table.py"


@pytest.mark.parametrize("place", range(1, len(SPINE)))
def test_each_module_is_reached_from_those_before_it(place: int) -> None:
    before = [module_of(file) for file in SPINE[:place]]
    assert module_of(SPINE[place]) in reached_from(before)


def test_every_stage_comes_in_the_order_of_the_data() -> None:
    stages = [file.split("/")[1] for file in SPINE if re.match("pipelines/.+/", file)]
    order = ["commands", "plan", "execution", "trial", "store", "analysis", "statistics", "report"]
    assert [*dict.fromkeys(stages)] == order


def test_modules_beside_the_spine_that_the_page_names_exist() -> None:
    for file in re.findall(r"`(\w+/[\w/]+\.py)`", PAGE):
        assert (ROOT / "pipelines" / file).is_file() or (ROOT / file).is_file(), file


def tool_files() -> list[Path]:
    """Files of the tool, without those of packages and programs."""
    named = (file for name, file in MODULES.items() if not re.match(r"perfsweep\.(workloads|conf)", name))
    return [file.relative_to(SOURCES) for file in named if file.name not in ("__init__.py", "__main__.py")]


def test_a_module_is_the_only_one_of_its_name() -> None:
    twice = [name for name, times in Counter(file.name for file in tool_files()).items() if times > 1]
    assert not twice


def test_no_folder_hides_folders() -> None:
    sizes = Counter(file.parent for file in tool_files())
    assert {str(folder): size for folder, size in sizes.items() if size > MOST_IN_A_FOLDER} == {}


def test_comparing_loads_what_judges_records_and_little_else() -> None:
    code = "import sys, perfsweep.pipelines.analysis.compare\nprint(*sys.modules)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    loaded = [name for name in said.split() if name.partition(".")[0] == "perfsweep"]
    assert 0 < len(loaded) <= MOST_LOADED
