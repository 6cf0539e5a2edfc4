"""Paths that need a CUDA device, and the Triton kernels, which its interpreter can also run without one."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from tables.prover import PRESETS

from pipelines.plan.arms import Space
from workloads.api import Context, Device
from workloads.prover.config import ProverConfig
from workloads.prover.workload import Prover

on_gpu = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]

KERNELS = """
import sys
sys.path.insert(0, {folder!r})
import torch
import test_resolution as resolution
from workloads.prover.data.generator import generate
from workloads.prover.kernels.native import activate as on_cpu
from workloads.prover.kernels.triton_trunk import activate

rows = [torch.randn(5, 40), *(torch.randn(40) for _ in range(3)), torch.randn(5, 40)]
fused, native = (run(*rows[:4], rows[4].clone())[0] for run in (activate, on_cpu))
assert torch.allclose(fused, native, atol=1e-5)
for name, size in (("kinship", 2), ("countries", 30)):
    kb = resolution.KnowledgeBase.build(generate(name, size, 0, 0.2, 0))
    resolver = resolution.resolver_of(kb)
    cases = resolution.walks(resolver, [tuple(fact) for fact in kb.facts.tolist()], 2, seed=1)[:8]
    for path in ({{}}, {{"policy_rows": "ragged", "index_dtype": "int32"}}):
        wrong = resolution.against_oracle(kb, cases, {{"expand_kernel": "triton", **path}}, resolver)
        assert wrong == [], (name, path, wrong)
"""


def test_triton_kernels_make_the_oracles_lists_in_its_interpreter():
    if importlib.util.find_spec("triton") is None:
        pytest.skip("Triton is not installed here")
    code = KERNELS.format(folder=str(Path(__file__).with_name("maths")))
    found = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert found.returncode == 0, found.stderr[-2000:]


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
