"""The page on GPUs says of every level that acts on CUDA alone how it was checked without a GPU."""

from __future__ import annotations

import re
from functools import cache

import pytest
from documented import ROOT

from perfsweep.pipelines.gpu_check.answer import ASSUMED
from perfsweep.pipelines.gpu_check.workload_stages import only_on
from perfsweep.workloads import registry
from perfsweep.workloads.api import Device

PAGE = ROOT / "docs" / "gpu.md"
SECTION = "## Paths"


@cache
def named() -> set[str]:
    """Everything in code's letters in the table of that section."""
    table = PAGE.read_text().partition(SECTION)[2].partition("\n## ")[0]
    return {
        word for line in table.splitlines() if line.startswith("|") for word in re.findall("`(.+?)`", line)
    }


@pytest.mark.parametrize("workload", sorted(registry.names()))
def test_every_level_for_cuda_alone_has_a_line(workload: str) -> None:
    levels = only_on(registry.find(workload), ASSUMED, Device(compiler=True))
    due = {f"{toggle}={value}" for toggle, values in levels.items() for value in values}
    assert due - named() == set()


def test_a_level_that_is_on_the_page_is_a_level() -> None:
    known = {
        f"{toggle.name}={level.value}"
        for name in registry.names()
        for toggle in (*registry.find(name).toggles, *registry.find(name).on_request)
        for level in toggle.levels
    }
    assert {word for word in named() if re.fullmatch(r"\w+=\w+", word)} - known == set()
