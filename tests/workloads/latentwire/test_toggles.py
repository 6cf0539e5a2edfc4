"""What choosing a level of LatentWire implies beside its class, and which counter shows that it acts."""

from __future__ import annotations

import spelled

from workloads.latentwire.toggles import TOGGLES

EXPECTED = """
    pin_memory=on: moves pinned_batches
    non_blocking=on: moves unwaited_copies, needs pin_memory=on
    prefetch=stream: moves prefetched_batches
    resident_data=on: moves host_copies, needs tokenise=pre/cache
    loader=dataloader: moves loader_batches, not with resident_data=on
    loader=resident_index: moves loader_batches, needs resident_data=on
    num_workers=2: moves worker_batches, needs loader=dataloader
    num_workers=4: moves worker_batches, needs loader=dataloader
    num_workers=+: moves worker_batches, needs loader=dataloader
    tokenise=pre: moves rows_tokenised
    tokenise=cache: moves rows_tokenised
    accum=backward_each: moves graphs_kept
    model_backward=per_model: moves backward_calls, needs accum=backward_each
    micro_batch=8: moves micro_steps
    micro_batch=32: moves micro_steps
    micro_batch=64: moves micro_steps
    micro_batch=auto: moves micro_steps
    micro_batch=+: moves micro_steps
    effective_batch=256: moves examples_per_step
    effective_batch=1024: moves examples_per_step
    effective_batch=+: moves examples_per_step
    k_loss=kv: moves student_positions
    k_loss=batched: moves student_positions
    passes=merged: moves student_passes, needs k_loss=batched
    logits=slice: moves head_rows
    logits=fused_ce: moves head_bytes
    last_block=pruned: moves lm_flops, needs logits=slice/fused_ce passes=merged
    teacher=slice: moves teacher_head_rows
    teacher=slice_header: moves teacher_positions
    teacher=cache_h: moves teacher_rows, needs tokenise=pre/cache
    teacher=cache_topk: moves teacher_rows, needs tokenise=pre/cache
    encoder_trim=batch_max: moves encoder_positions
    encoder_attn=native: moves encoder_kernels
    answer_trim=batch_max: moves student_positions, not with compile=block/reduce_overhead
    calibration=once: moves table_reads
    attn=sdpa: moves attention_kernels
    attn=flash: moves attention_kernels, one of lm_dtype=bf16/int8_wo/fp8 amp=bf16/fp16
    attn=varlen: moves attention_kernels, one of lm_dtype=bf16/int8_wo/fp8 amp=bf16/fp16
    lm_dtype=bf16: moves lm_bytes
    lm_dtype=int8_wo: moves lm_bytes
    lm_dtype=fp8: moves lm_bytes
    amp=bf16: moves low_precision_ops
    amp=fp16: moves low_precision_ops
    lm_layers=fused: moves ops
    lm_layers=native: moves ops, not with compile=block/reduce_overhead
    freeze=off: moves lm_gradients, not with lm_dtype=int8_wo/fp8
    products=native: moves native_products
    optimizer=foreach: moves ops
    optimizer=fused: moves ops
    sync=late: moves syncs
    grad_checkpointing=on: moves saved_bytes
    grad_checkpointing=selective: moves saved_bytes
    bucket=window: moves padded_positions
    bucket=global: moves padded_positions
    compile=block: moves compiled_graphs
    compile=reduce_overhead: moves cudagraph_recordings
    empty_cache=epoch: moves cache_releases
    empty_cache=step: moves cache_releases
    parallel=layer_split: moves devices_used
    parallel=ddp: moves ranks, 2 ranks, on each GPU
    parallel=model_per_gpu: moves ranks, 2 ranks
    parallel=fsdp: moves ranks, 2 ranks, on each GPU
    oom=backoff: moves retries
    decode=batched: moves decode_calls
"""


def test_every_level_needs_and_moves_what_it_is_said_to() -> None:
    assert spelled.levels(TOGGLES) == spelled.entries(EXPECTED, {})
