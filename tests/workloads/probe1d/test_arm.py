"""What an arm is made of, and the memory of a slab."""

from __future__ import annotations

import inspect

import pytest

from perfsweep.workloads.api import NullClock
from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.probe1d.config import Probe1DConfig
from perfsweep.workloads.probe1d.counters import Counts
from perfsweep.workloads.probe1d.reference import Reference
from perfsweep.workloads.probe1d.variants import TOGGLES, VARIANTS, arm

BASE = {toggle.name: toggle.levels[0].value for toggle in TOGGLES}


def chosen(**levels: str | int) -> Reference:
    own = {**BASE, **levels}
    return arm(own)(own, Probe1DConfig(), Counts(), lambda row: None, NullClock.phase)


def test_the_reference_looks_at_no_toggle_but_for_the_numbers_of_two() -> None:
    source = inspect.getsource(Reference)
    assert {name for name in VARIANTS if f'"{name}"' in source} <= {"slab_size", "chunk_events"}


def test_a_slab_that_just_fits_passes_and_a_wider_one_is_refused_with_what_fits() -> None:
    paths = chosen(slab_size=8, label_free="on", csc_layout="on")
    needed = paths.slab_bytes(1000, 20)
    paths.check_memory(None, 1000, 20)
    paths.check_memory(needed, 1000, 20)
    sentence = (
        r"slab_size=8 needs 1\.1 MiB for 1000 latents and the budget is 1\.1 MiB .*slab_size=7 would fit"
    )
    with pytest.raises(ConfigError, match=sentence):
        paths.check_memory(needed - 1, 1000, 20)
    with pytest.raises(ConfigError, match=r"not even one class fits: raise workload\.memory_mb"):
        paths.check_memory(needed // 8 - 1, 1000, 20)
