"""The reference of the library is complete and current, and everything in it has a sentence."""

from __future__ import annotations

import importlib
import re

import library_page as reference
from documented import ROOT

import perfsweep

PAGE = ROOT / "docs" / "library.md"


def test_the_page_of_the_library_is_up_to_date() -> None:
    current = "PYTHONPATH=tests/support python -m library_page > docs/library.md"
    assert PAGE.read_text() == reference.page(), current


def test_every_name_that_can_be_imported_has_an_entry() -> None:
    headings = [
        line.removeprefix("### ") for line in PAGE.read_text().splitlines() if line.startswith("### ")
    ]
    libraries = [importlib.import_module(f"perfsweep.{name}") for name in reference.LIBRARIES]
    expected = [
        *(f"perfsweep.{name}" for name in perfsweep.__all__),
        *(name for name, _ in reference.contract()),
        *(name for module in libraries for name in module.__all__),
    ]
    assert headings == expected


def test_nothing_on_the_page_lacks_its_sentence_or_depends_on_the_process() -> None:
    text = PAGE.read_text()
    assert re.findall(r"^\| [^|]+ \|  \|$", text, re.MULTILINE) == []
    assert " at 0x" not in text
