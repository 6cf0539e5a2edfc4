"""What choosing a level of a script implies, which counter shows it, and how far results may move."""

from __future__ import annotations

import spelled

from workloads.script.toggles import TOGGLES

EXPECTED = """
    amp=bf16: moves low_precision_ops
    amp=fp16: moves low_precision_ops
    tf32=on: moves tf32_iterations
    compile=default: moves compiled_graphs
    compile=reduce_overhead: moves compiled_graphs
    compile=max_autotune: moves compiled_graphs
    optimizer=foreach: moves ops
    optimizer=fused: moves ops
    cudnn_benchmark=on: moves benchmarked_iterations
    channels_last=on: moves channels_last_inputs
    sdpa=flash: moves attention_kernels
    sdpa=efficient: moves attention_kernels
    sdpa=math: moves attention_kernels
    sdpa=cudnn: moves attention_kernels
    num_workers=0: moves loader_workers
    num_workers=2: moves loader_workers
    num_workers=4: moves loader_workers
    num_workers=+: moves loader_workers
    pin_memory=on: moves pinned_batches
    persistent_workers=on: moves persistent_batches
    prefetch_factor=4: moves batches_ahead
    prefetch_factor=+: moves batches_ahead
    non_blocking=on: moves unwaited_copies
    zero_grad=zero: moves ops
    zero_grad=none: moves ops
    grad_checkpointing=on: moves saved_bytes
    threads=1: moves threads
    threads=+: moves threads
"""
BOUNDS = """
    amp=bf16: first_gradient=0.1 losses=0.02 parameters=0.05
    amp=fp16: first_gradient=0.1 losses=0.02 parameters=0.05
    tf32=on: first_gradient=0.03 losses=0.005 parameters=0.03
    compile=default: first_gradient=0.005 losses=0.001 parameters=0.02
    compile=reduce_overhead: first_gradient=0.005 losses=0.001 parameters=0.02
    compile=max_autotune: first_gradient=0.005 losses=0.001 parameters=0.02
    optimizer=foreach: losses=0.001 parameters=0.02
    optimizer=fused: losses=0.001 parameters=0.02
    cudnn_benchmark=on: losses=0.001 parameters=0.02
    channels_last=on: first_gradient=0.005 losses=0.001 parameters=0.02
    sdpa=flash: losses=0.001 parameters=0.02
    sdpa=efficient: losses=0.001 parameters=0.02
    sdpa=math: losses=0.001 parameters=0.02
    sdpa=cudnn: losses=0.001 parameters=0.02
    threads=1: losses=0.001 parameters=0.02
"""


def test_every_level_needs_and_moves_what_it_is_said_to() -> None:
    assert spelled.levels(TOGGLES) == spelled.entries(EXPECTED, {})


def test_results_may_move_as_far_as_was_measured() -> None:
    bounds = [
        f"{toggle.name}={level.value}: {spelled.spelled(level.bounds)}"
        for toggle in TOGGLES
        for level in toggle.levels
        if level.bounds
    ]
    assert bounds == spelled.entries(BOUNDS, {})
