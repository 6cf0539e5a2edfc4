"""What a level says of itself that the pipelines act on."""

from __future__ import annotations

from perfsweep.workloads import registry


def test_a_level_whose_kernels_are_chosen_by_timing_says_so_whatever_the_workload() -> None:
    levels = {
        (name, toggle.name, level.value): level.autotunes
        for name in registry.names()
        for toggle in registry.find(name).toggles
        for level in toggle.levels
    }
    assert ("prover", "compile", "max_autotune") in levels
    assert all(autotunes == (value == "max_autotune") for (*_, value), autotunes in levels.items())
