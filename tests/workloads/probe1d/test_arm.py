"""What an arm is made of, and the memory of a slab."""

from __future__ import annotations

import inspect

import pytest
import torch

from perfsweep.workloads.api import NullClock
from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.probe1d.config import Probe1DConfig
from perfsweep.workloads.probe1d.counters import Counts
from perfsweep.workloads.probe1d.reference import Reference
from perfsweep.workloads.probe1d.variants import TOGGLES, VARIANTS, arm, row_walk

BASE = {toggle.name: toggle.levels[0].value for toggle in TOGGLES}


def chosen(**levels: str | int) -> Reference:
    own = {**BASE, **levels}
    return arm(own)(own, Probe1DConfig(), Counts(), lambda row: None, NullClock.phase)


def test_the_naive_arm_is_the_reference_and_nothing_else() -> None:
    assert arm(BASE).__mro__[1:] == Reference.__mro__


@pytest.mark.parametrize("name", VARIANTS)
def test_the_reference_looks_at_no_toggle(name: str) -> None:
    own = {"slab_size", "chunk_events"}  # numbers of it, whatever the level
    assert name in own or f'"{name}"' not in inspect.getsource(Reference)


def test_what_a_level_requires_is_replaced_before_it() -> None:
    fused = arm({**BASE, "label_free": "on", "csc_layout": "on", "fused_kernel": "on", "warm_start": "on"})
    names = [one.__name__ for one in fused.__mro__]
    assert names.index("Fused") < names.index("ByLatent") < names.index("LabelFree")


@pytest.mark.parametrize(("size", "width"), [("all", 20), (8, 8), (20, 20), (64, 20)])
def test_a_slab_is_no_wider_than_the_grid(size: str | int, width: int) -> None:
    assert chosen(slab_size=size).slab_width(20) == width


@pytest.mark.parametrize(
    ("level", "precision", "cache", "events"),
    [
        (512, "f32", 2**30, 512),
        ("auto", "f32", 12 * 8 * 4 * 5000, 5000),
        ("auto", "f64", 12 * 8 * 8 * 5000, 5000),
        ("auto", "f32acc64", 12 * 8 * 4 * 5000, 5000),
        ("auto", "f32", 1, 1024),
    ],
)
def test_a_chunk_fills_the_cache(
    level: str | int, precision: str, cache: int, events: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_walk, "CACHE_BYTES", cache)
    assert chosen(chunk_events=level, precision=precision, slab_size=8).chunk_limit(100) == events


def test_memory_of_a_slab_is_its_state_and_by_row_one_chunk() -> None:
    by_row = chosen(slab_size=8, precision="f32acc64", chunk_events=1000)
    assert by_row.slab_bytes(latents=100, classes=20) == 35 * 100 * 8 * 8 + 12 * 1000 * 8 * 4
    by_latent = chosen(slab_size=8, precision="f32acc64", label_free="on", csc_layout="on")
    assert by_latent.slab_bytes(latents=100, classes=20) == 35 * 100 * 8 * 8


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


def test_events_are_cast_to_the_type_of_the_level_and_added_in_that_of_their_sums() -> None:
    found = {level: chosen(precision=level).precision for level in ("f32", "f64", "f32acc64")}
    assert [one.compute for one in found.values()] == [torch.float32, torch.float64, torch.float32]
    assert [one.sums for one in found.values()] == [torch.float32, torch.float64, torch.float64]
