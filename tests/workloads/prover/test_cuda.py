"""Paths that need a CUDA device; what the Triton kernels do without one stands in kernels/test_triton.py."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tables.prover import PRESETS

from perfsweep.pipelines.plan.arms import Space
from perfsweep.workloads.api import Context, Device
from perfsweep.workloads.prover.config import ProverConfig
from perfsweep.workloads.prover.workload import Prover

on_gpu = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


@pytest.fixture
def on_device(cache_dir, tmp_path, run_to_end):
    def run(levels, **config):
        major, minor = torch.cuda.get_device_capability()
        device = Device("cuda", 1, torch.cuda.get_device_name(), capability=(major, minor), compiler=True)
        made = ProverConfig(**config)
        workload = Prover()
        context = Context(device=device, scratch_dir=tmp_path, cache_dir=cache_dir)
        workload.setup(made, Space(Prover.toggles, made, device).closure(levels), context)
        workload.prepare_evidence()
        return run_to_end(workload)

    return run


def same(one, other):
    return all(
        np.array_equal(one.tensors[name], other.tensors[name])
        for name in ("success", "depth", "actions", "rank")
    )


GPU_ARMS = {
    "naive": {},
    "fused": {**PRESETS["gpu"], "tf32": "off", "slab_size": 64, "fused_trunk": "on"},
    "triton in grids": {"expand_kernel": "triton", "slab_size": 16},
    "lagging exit": {"early_exit_all": "async_lag1", "slab_size": 16},
    "screened": {**PRESETS["screened"], "slab_size": 32},
}


@pytest.mark.parametrize(
    "levels", [pytest.param(levels, id=name, marks=on_gpu) for name, levels in GPU_ARMS.items()]
)
def test_a_gpu_chooses_what_the_cpu_chooses(on_device, solve, levels):
    assert same(on_device(levels).evidence(), solve({}).evidence())


@pytest.mark.slow
@pytest.mark.parametrize(
    "levels", [pytest.param({**PRESETS["static"], "slab_size": 32}, marks=on_gpu, id="graphs")]
)
def test_graphs_are_captured_once_and_replayed(on_device, solve, levels):
    workload = on_device(levels)
    assert workload.counters()["recompiles_after_warmup"] == 0
    assert same(workload.evidence(), solve({}).evidence())


@pytest.mark.parametrize("queries", [pytest.param((20, 80), marks=on_gpu, id="flat")])
def test_memory_of_a_streamed_queue_is_flat_in_the_number_of_queries(on_device, queries):
    peaks = []
    for count in queries:
        torch.cuda.reset_peak_memory_stats()
        on_device({**PRESETS["gpu"], "tf32": "off", "slab_size": 64}, queries=count)
        peaks.append(torch.cuda.max_memory_allocated())
    assert peaks[1] < 1.2 * peaks[0]
