"""Levels that act on CUDA devices only, and the device against the host."""

from __future__ import annotations

import pytest
import torch

from perfsweep.workloads.api import Device
from perfsweep.workloads.latentwire.variants import FAST_EXACT

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

FAST = {name: level for name, level in FAST_EXACT.items() if name != "encoder_attn"}
FAST |= {"effective_batch": 4, "micro_batch": 4}
ADDED = {"lora_rank": 4, "deep_prefix": True}


def gpu() -> Device:
    return Device(
        "cuda", count=1, name="GPU", capability=torch.cuda.get_device_capability(), cores=8, compiler=True
    )


@pytest.mark.parametrize(
    ("levels", "counter"),
    [
        ({"pin_memory": "on"}, "pinned_batches"),
        ({"pin_memory": "on", "non_blocking": "on"}, "unwaited_copies"),
        ({"prefetch": "stream"}, "prefetched_batches"),
        ({"prefetch": "stream", "pin_memory": "on", "non_blocking": "on"}, "prefetched_batches"),
        ({"loader": "dataloader", "num_workers": 2, "pin_memory": "on"}, "pinned_batches"),
        ({"empty_cache": "step"}, "cache_releases"),
    ],
)
def test_how_rows_travel_changes_no_result(evidence_of, start, run, deviations, levels, counter) -> None:
    workload = run(start(levels, device=gpu()), 3)
    assert workload.counters()[counter] == 3
    arm, base = (evidence_of(chosen, device=gpu()) for chosen in (levels, {}))
    assert max(deviations(arm, base).values()) <= 1e-12


@pytest.mark.parametrize("levels", [{}, FAST])
@pytest.mark.parametrize("config", [{}, ADDED])
def test_the_device_trains_as_the_host_does(evidence_of, deviations, levels, config) -> None:
    assert (
        max(deviations(evidence_of(levels, device=gpu(), **config), evidence_of(**config)).values()) <= 1e-8
    )


@pytest.mark.parametrize(
    "levels",
    [
        {"attn": "flash", "lm_dtype": "bf16"},
        {"attn": "flash", "amp": "bf16"},
        {"amp": "fp16"},
        {"lm_dtype": "bf16"},
    ],
)
def test_rounded_levels_stay_near_on_cuda(evidence_of, deviations, levels) -> None:
    found = deviations(
        evidence_of(levels, device=gpu(), dtype="float32"), evidence_of(device=gpu(), dtype="float32")
    )
    assert found["terms"] <= 1e-2
    assert found["gradient"] <= 3e-2


@pytest.mark.parametrize("config", [{}, ADDED])
def test_a_late_step_waits_for_nothing(start, run, config) -> None:
    workload = run(start(FAST, device=gpu(), **config), 3)
    torch.cuda.synchronize()
    done = workload.progress()
    torch.cuda.set_sync_debug_mode("error")
    try:
        run(workload, 3)  # raises where anything waits
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert workload.progress() == 2 * done


def test_the_allocator_is_asked_for_the_size_that_fits(start) -> None:
    assert start({"micro_batch": "auto"}, device=gpu()).arm.shape.micro == 4


@pytest.mark.slow
def test_replayed_graphs_compute_the_same(evidence_of, deviations) -> None:
    levels = {"passes": "merged", "compile": "reduce_overhead"}
    found = deviations(
        evidence_of(levels, device=gpu(), dtype="float32"), evidence_of(device=gpu(), dtype="float32")
    )
    assert max(found["terms"], found["gradient"]) <= 1e-4


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
@pytest.mark.parametrize("config", [{}, ADDED])
def test_split_layers_compute_the_same(evidence_of, deviations, config) -> None:
    arm = evidence_of({"parallel": "layer_split"}, device=gpu(), **config)
    assert max(deviations(arm, evidence_of(device=gpu(), **config)).values()) <= 1e-10
