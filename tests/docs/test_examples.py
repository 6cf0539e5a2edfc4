"""Every example is listed, compiles, and does what its first lines say, in a folder that holds it alone."""

from __future__ import annotations

import ast
import re
import shutil
from pathlib import Path

import pytest
from documented import FEW, ROOT, SHORT, execute

FOLDER = ROOT / "examples"
EXAMPLES = sorted(FOLDER.glob("*.py"))


def commands(example: Path) -> list[list[str]]:
    """The indented lines of the first text of an example, in words."""
    text = (ast.get_docstring(ast.parse(example.read_text())) or "").replace("\\\n", " ")
    lines = re.findall(r"^    +((?:perfsweep|python) .*)$", text, re.MULTILINE)
    return [[word.strip("'") for word in line.split()] for line in lines]


def test_the_list_names_every_example_once() -> None:
    listed = re.findall(r"^\| \[(\S+)\]\(\1\) \|", (FOLDER / "README.md").read_text(), re.MULTILINE)
    assert sorted(listed) == [example.name for example in EXAMPLES]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_an_example_compiles_and_says_how_to_run_it(example: Path) -> None:
    compile(example.read_text(), str(example), "exec")
    assert any(example.stem in word for words in commands(example) for word in words)


@pytest.fixture
def folder(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A folder with one example in it."""
    shutil.copy(request.param, tmp_path)
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize(
    ("example", "folder"), [(one, one) for one in EXAMPLES], ids=lambda one: one.name, indirect=["folder"]
)
def test_an_example_does_what_its_first_lines_say(example: Path, folder: Path) -> None:
    """Every command, in order; sweeps measure as little as they can, whatever they answer."""
    for words in commands(example):
        measures = words[1] == "sweep" or words[:2] == ["python", "sweep_from_python.py"]
        execute(words, folder, *((SHORT if words[1] == "sweep" else FEW) if measures else ()))
    written = list((folder / "runs").glob("*/report.html"))
    assert len(written) == 1
