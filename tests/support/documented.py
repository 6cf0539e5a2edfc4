"""Commands and files in the documentation, taken from it and done as a reader would."""

from __future__ import annotations

import re
import runpy
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from installed_wheel import run
from markupsafe import Markup
from typed import ended

from perfsweep.pipelines.report import svg

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("**/*.md")))

SHORT = (
    *("measure.rounds=1", "measure.servers=1", "measure.repeats=0", "measure.timed_parity=false"),
    *("measure.look=true", "measure.iterations=5", "measure.warmup_max=5", "measure.counting_iterations=2"),
    *("measure.evidence_iterations=2", "tracking=disabled", "cluster.executor=inprocess"),
)
"""Options of a sweep that measures as little as it can, whatever it answers."""

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`([^`\n]+)`")


@dataclass(frozen=True)
class Block:
    """A fenced block with its language."""

    language: str
    text: str

    @property
    def file(self) -> str | None:
        """The name in its first line, or after Hydra's header, where the block is a file to be written."""
        found = re.match(r"(?:# @package _global_\n)?# (\S+\.(?:py|yaml))$", self.text, re.MULTILINE)
        return found[1] if found else None

    @property
    def commands(self) -> list[list[str]]:
        """Words of each line."""
        return [words for line in self.text.splitlines() if (words := shlex.split(line, comments=True))]


def blocks(page: Path) -> list[Block]:
    """All fenced blocks of a page, in order."""
    return [Block(*found) for found in _BLOCK.findall(page.read_text())]


def execute(words: Sequence[str], folder: Path, *more: str) -> str:
    """Run `python ...` or `perfsweep ...` in a folder, with `more` after it; what it prints."""
    return run(Path(sys.executable).with_name(words[0]), *words[1:], *more, cwd=folder, OMP_NUM_THREADS="1")


def perform(words: Sequence[str], *more: str) -> None:
    """Do `python FILE` or `perfsweep ...` with `more` in this process and folder; draw no pictures."""
    program, *rest = [*words, *more]
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(Path.cwd())
        patch.setattr(sys, "argv", rest)
        patch.setattr(svg, "drawn", lambda *chart: Markup())
        if program == "python":
            runpy.run_path(rest[0], run_name="__main__")
        else:
            assert ended(*rest) == 0, words
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", "")).startswith(f"{Path.cwd()}/"):
            del sys.modules[name]


def commands(page: Path, program: str) -> list[list[str]]:
    """Every command line of a program on a page, in blocks and running text, without the program's name."""
    text = page.read_text()
    lines = [
        line for block in _BLOCK.findall(text) if block[0] in ("", "sh") for line in block[1].splitlines()
    ]
    lines += _INLINE.findall(_BLOCK.sub("", text))
    found = []
    for line in lines:
        match = re.match(rf"(?:\S+/)?{program} (.*)", line.strip())
        if match and "..." not in line:
            found.append(match[1].replace(" && make", "\nmake"))
    return [
        shlex.split(part.removeprefix("make "), comments=True)
        for line in dict.fromkeys(found)
        for part in line.split("\n")
    ]
