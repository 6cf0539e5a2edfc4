"""What choosing a level of SPD implies beside its class, and which counter shows that it acts."""

from __future__ import annotations

import spelled

from workloads.spd.toggles import TOGGLES

EXPECTED = """
    pin_memory=on: moves pinned_batches
    num_workers=2: moves worker_batches
    num_workers=4: moves worker_batches
    num_workers=8: moves worker_batches
    num_workers=+: moves worker_batches
    compile=ci_fns: moves compiled_graphs
    compile=target: moves compiled_graphs, needs patching=wrapper/persistent_hooks
    compile=losses: moves compiled_graphs
    compile=breaks: moves compiled_graphs, needs patching=wrapper/persistent_hooks
    compile=masked_pass: moves compiled_graphs, needs patching=wrapper, not with component_kernel=fused
    ... grad_checkpointing=per_block routed_rows=gathered
    compile=full: moves compiled_graphs, needs patching=wrapper, not with component_kernel=fused
    ... grad_checkpointing=per_block routed_rows=gathered
    non_blocking=on: moves unwaited_copies, needs pin_memory=on
    prefetch=stream: moves prefetched_batches
    tf32=on: moves tf32_products
    amp=bf16: moves low_precision_ops
    amp=fp16: moves low_precision_ops, needs pgd_inner=detached
    patching=persistent_hooks: moves hook_registrations
    patching=wrapper: moves hook_registrations
    prefix_reuse=on: moves flops, needs patching=wrapper
    routed_rows=gathered: moves flops, needs delta=folded
    delta=cached_w: moves weight_fetches
    delta=folded: moves flops, needs patching=wrapper
    unmasked_form=fused: moves flops
    unmasked_form=by_cost: moves flops
    stack_modules=stacked: moves ops, needs patching=wrapper
    pgd_inner=detached: moves saved_bytes
    pgd_layerwise=single: moves masked_modules
    pgd_steps=schedule: moves pgd_passes
    pgd_steps=larger: moves pgd_passes
    pgd_steps=every_k: moves pgd_passes
    pgd_steps=persistent: moves pgd_passes
    checkpoint=async: moves background_saves
    wandb_logging=each: moves wandb_calls
    wandb_logging=commit_false: moves wandb_calls
    wandb_logging=buffered: moves wandb_calls
    gc=rarely: moves collections
    gc=frozen: moves collections
    gc=oom_only: moves collections
    grad_checkpointing=per_block: moves saved_bytes, needs patching=wrapper
    free_early=on: moves held_bytes
    profiler=events: moves recorded_events
    profiler=torch: moves profiled_steps
    profiler=pyinstrument: moves profiler_samples
    metrics=deferred: moves host_reads
    mask_checks=off: moves host_reads
    mask_checks=async_assert: moves host_reads
    target_softmax=cached: moves softmax_rows
    kl_chunk=1024: moves vocabulary_bytes, not with compile=masked_pass/full
    kl_chunk=+: moves vocabulary_bytes, not with compile=masked_pass/full
    micro_batch=whole: moves masked_passes
    draws=native: moves ops
    products=native: moves native_products
    optimizer=foreach: moves ops
    optimizer=fused: moves ops
    cuda_graph=on: moves graph_replays, needs metrics=deferred mask_checks=async_assert/off, not with
    ... pgd_steps=schedule/every_k/persistent
    fused_target_ops=on: moves ops
    component_kernel=fused: moves ops, needs delta=folded
    gradients=formulas: moves ops, needs delta=folded stack_modules=stacked mask_checks=off, not with
    ... compile=target/breaks/ci_fns/losses/masked_pass/full amp=bf16/fp16 grad_checkpointing=per_block
    gradients=native: moves ops, needs delta=folded stack_modules=stacked mask_checks=off, not with
    ... compile=target/breaks/ci_fns/losses/masked_pass/full amp=bf16/fp16 grad_checkpointing=per_block
    loader=memmap_batched: moves row_fetches
    loader=gpu_resident: moves row_fetches, needs pin_memory=off num_workers=0 non_blocking=off
    ... prefetch=off
"""


def test_every_level_needs_and_moves_what_it_is_said_to() -> None:
    assert spelled.levels(TOGGLES) == spelled.entries(EXPECTED, {})
