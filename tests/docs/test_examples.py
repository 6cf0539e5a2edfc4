"""Every example is listed, compiles, and does what its first lines say."""

from __future__ import annotations

import ast
import re
import shutil
from pathlib import Path

import pytest
from documented import ROOT, SHORT, perform

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


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where examples run, from one fork server."""
    return tmp_path_factory.mktemp("examples")


@pytest.mark.slow
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_an_example_does_what_its_first_lines_say(
    example: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All but first looks, which a sweep of the same script follows; sweeps measure as little as they can."""
    before = len(list(folder.glob("runs/*/report.html")))
    shutil.copy(example, folder)
    monkeypatch.chdir(folder)
    for words in commands(example):
        if words[1] != "script":
            perform(words, *(() if words[1] == "check" else SHORT))
    assert len(list(folder.glob("runs/*/report.html"))) == before + 1
