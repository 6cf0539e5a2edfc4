"""What an arm chooses of its levels, and the memory of a slab."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.probe1d.choices import Choices
from perfsweep.workloads.probe1d.config import Probe1DConfig
from perfsweep.workloads.probe1d.maths.levenberg_marquardt import LATE, NAIVE
from perfsweep.workloads.probe1d.toggles import TOGGLES

BASE = {toggle.name: toggle.levels[0].value for toggle in TOGGLES}


def chosen(**levels: str | int) -> Choices:
    return Choices.of({**BASE, **levels})


@pytest.mark.parametrize(
    ("level", "field", "value"),
    [
        *(({name: "on"}, name, True) for name in ("cache_row_idx", "cast_once", "no_sync_log", "label_free")),
        *(({name: "on"}, name, True) for name in ("csc_layout", "compile", "fused_kernel")),
        ({"confusion_search": "on"}, "confusion_search", True),
        ({"consistent_stop": "scaled"}, "scaled_stop", True),
        ({"consistent_stop": "mismatch"}, "scaled_stop", False),
        ({"chunk_events": "auto"}, "chunk_events", "auto"),
        ({"chunk_events": 4096}, "chunk_events", 4096),
        ({"slab_size": "all"}, "slab_size", "all"),
        ({"slab_size": 16}, "slab_size", 16),
        ({"freeze_failed": 3}, "freeze_failed", 3),
        ({"solver": "late"}, "solver", "late"),
        ({"qx_stat": "max"}, "qx_stat", "max"),
        ({"warm_start": "on"}, "warm_start", "on"),
        ({"timing_hook": "profiler"}, "timing_hook", "profiler"),
        ({"active_set": "pair"}, "active_set", True),
        ({"skip_zero_grad": "exact"}, "skip_zero_grad", "exact"),
    ],
)
def test_each_level_reaches_its_choice_and_no_other(level: dict, field: str, value: object) -> None:
    found, base = chosen(**level), chosen()
    assert getattr(found, field) == value
    others = {one.name for one in dataclasses.fields(Choices)} - {field}
    assert all(getattr(found, name) == getattr(base, name) for name in others)


@pytest.mark.parametrize(
    ("level", "compute", "sums"),
    [
        ("f32", torch.float32, torch.float32),
        ("f64", torch.float64, torch.float64),
        ("f32acc64", torch.float32, torch.float64),
    ],
)
def test_types_of_events_and_of_their_sums(level: str, compute: torch.dtype, sums: torch.dtype) -> None:
    precision = chosen(precision=level).precision
    assert (precision.compute, precision.sums, precision.block) == (compute, sums, False)


def test_passes_are_those_of_the_form_or_as_configured() -> None:
    assert chosen(solver="naive").rules(Probe1DConfig()) == NAIVE
    assert chosen(solver="late").rules(Probe1DConfig()) == LATE
    assert (NAIVE.max_iter, LATE.max_iter) == (100, 30)
    assert chosen(solver="late").rules(Probe1DConfig(max_iter=7)) == dataclasses.replace(LATE, max_iter=7)


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
def test_a_chunk_fills_the_cache(level: str | int, precision: str, cache: int, events: int) -> None:
    choices = chosen(chunk_events=level, precision=precision, slab_size=8)
    assert choices.chunk_limit(cache, 100) == events


def test_memory_of_a_slab_is_its_state_and_by_row_one_chunk() -> None:
    by_row = chosen(slab_size=8, precision="f32acc64")
    assert by_row.slab_bytes(latents=100, classes=20, chunk=1000) == 35 * 100 * 8 * 8 + 12 * 1000 * 8 * 4
    by_latent = chosen(slab_size=8, precision="f32acc64", csc_layout="on")
    assert by_latent.slab_bytes(latents=100, classes=20, chunk=1000) == 35 * 100 * 8 * 8


def test_a_slab_that_just_fits_passes_and_a_wider_one_is_refused_with_what_fits() -> None:
    choices = chosen(slab_size=8, csc_layout="on")
    needed = choices.slab_bytes(1000, 20, 0)
    choices.check_memory(None, 1000, 20, 0)
    choices.check_memory(needed, 1000, 20, 0)
    sentence = (
        r"slab_size=8 needs 1\.1 MiB for 1000 latents and the budget is 1\.1 MiB .*slab_size=7 would fit"
    )
    with pytest.raises(ConfigError, match=sentence):
        choices.check_memory(needed - 1, 1000, 20, 0)
    with pytest.raises(ConfigError, match=r"not even one class fits: raise workload\.memory_mb"):
        choices.check_memory(needed // 8 - 1, 1000, 20, 0)
