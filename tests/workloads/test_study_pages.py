"""The page in the folder of a case study says in which file each toggle is."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "workloads"
STUDIES = sorted(page.parent.name for page in FOLDER.glob("*/README.md"))


@pytest.mark.parametrize("study", STUDIES)
def test_the_page_of_a_study_names_every_toggle_with_its_file_and_every_link_leads_somewhere(
    study: str,
) -> None:
    page = FOLDER / study / "README.md"
    rows = re.findall(r"^\| `variants/(\w+)\.py` \| .* \| (.*) \|$", page.read_text(), re.MULTILINE)
    families = importlib.import_module(f"perfsweep.workloads.{study}.variants").FAMILIES
    assert {file: re.findall(r"`(\w+)`", toggles) for file, toggles in rows} == {
        family.__name__.rpartition(".")[2]: [one.toggle.name for one in family.VARIANTS]
        for family in families
    }
    for link in re.findall(r"\]\(([^)#]+)", page.read_text()):
        assert (page.parent / link).exists(), link
