"""One thing has one plain word in what a user reads: pages, messages and tables."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from documented import ROOT

from perfsweep.pipelines.statistics.verdicts import Verdict

PLAIN = {
    r"\b(the|every|each|first|same|its) references?\b(?! (of|implementation))": "baseline",
    r"\bheld back\b(?!`)": "too noisy, or what it is",
}
VALUES = tuple(Verdict)
"""Words of files, which programs read."""
PAGES = [ROOT / "README.md", *(page for page in (ROOT / "docs").glob("*.md") if page.name != "claims.md")]
CODE = [path for folder in ("pipelines", "slurm") for path in (ROOT / folder).rglob("*.py")]


def messages(path: Path) -> Iterator[str]:
    """Text in the code of a module that is neither a docstring nor a key."""
    tree = ast.parse(path.read_text())
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield "" if node.value in VALUES else node.value


@pytest.mark.parametrize(("word", "plain"), PLAIN.items())
def test_what_a_user_reads_has_the_plain_word(word: str, plain: str) -> None:
    texts = [(page, page.read_text()) for page in PAGES]
    texts += [(path, text) for path in CODE for text in messages(path)]
    found = [f"{path.relative_to(ROOT)}: {one[0]}" for path, text in texts for one in re.finditer(word, text)]
    assert not found, f"write {plain}"
