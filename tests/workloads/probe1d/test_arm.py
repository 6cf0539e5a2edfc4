"""What an arm is made of, and the memory of a slab."""

from __future__ import annotations

import inspect

import pytest

from perfsweep.workloads.api import NullClock
from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.probe1d.config import Probe1DConfig
from perfsweep.workloads.probe1d.counters import Counts
from perfsweep.workloads.probe1d.maths.pass_log import PassTimes
from perfsweep.workloads.probe1d.reference import Reference
from perfsweep.workloads.probe1d.variants import TOGGLES, VARIANTS, arm

BASE = {toggle.name: toggle.levels[0].value for toggle in TOGGLES}


def chosen(**levels: str | int) -> Reference:
    own = {**BASE, **levels}
    return arm(own)(own, Probe1DConfig(), Counts(), lambda row: None, NullClock.phase)


def test_the_reference_looks_at_no_toggle_but_for_the_numbers_of_two() -> None:
    source = inspect.getsource(Reference)
    assert {name for name in VARIANTS if f'"{name}"' in source} <= {"slab_size", "chunk_events"}


def test_passes_are_timed_one_by_one_and_forgotten_when_the_next_job_begins() -> None:
    counts = Counts()
    hook = PassTimes(counts, "cpu")
    for job in (1, 2):
        hook.job_begins()
        for slab, passes in ((0, 2), (3, 1)):
            for _ in range(passes):
                hook.pass_begins(slab)
            hook.slab_ends()
        assert [slab for slab, _ in hook.rows] == [
            0,
            0,
        ]  # the last is read when the next begins, or at the end
        hook.job_ends()
        assert [slab for slab, _ in hook.rows] == [0, 0, 3]
        assert all(0 < ms < 60_000 for _, ms in hook.rows) and not hook.pending
        assert counts.values["hook_records"] == 3 * job


def test_a_slab_needs_its_state_and_the_temporaries_of_a_chunk() -> None:
    assert chosen().slab_bytes(1000, 20) == 4 * (35 * 1000 * 8 + 12 * 32768 * 8)
    assert chosen(precision="f64").slab_bytes(1000, 5) == 8 * (35 * 1000 * 5 + 12 * 32768 * 5)
    assert chosen(precision="f32acc64").slab_bytes(1000, 20) == 8 * 35 * 1000 * 8 + 4 * 12 * 32768 * 8
    assert chosen(label_free="on", csc_layout="on", slab_size="all").slab_bytes(10, 20) == 4 * 35 * 10 * 20
    fits = chosen(chunk_events="auto")
    assert (fits.chunk_limit(20), fits.chunk_limit(20, cuda=True)) == (2**21 // (12 * 8 * 4), 2**22)
    assert chosen(chunk_events="auto", slab_size="all").chunk_limit(4000) == 1024


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
