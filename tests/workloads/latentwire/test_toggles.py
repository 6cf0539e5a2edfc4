"""What choosing a level of LatentWire implies beside its class, and which counter shows that it acts."""

from __future__ import annotations

import re
from typing import Any

import pytest
import spelled

from workloads.api import Level, Parity
from workloads.latentwire.config import LatentWireConfig
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


BASE = {toggle.name: toggle.levels[0].value for toggle in TOGGLES}


def level_of(name: str) -> tuple[Level, dict[str, Any]]:
    toggle, value = name.split("=")
    level = next(one for one in TOGGLES if one.name == toggle).level(value)
    return level, {**BASE, toggle: level.value}


@pytest.mark.parametrize(
    ("name", "config", "levels", "sentence"),
    [
        ("micro_batch=64", {}, {}, None),
        ("micro_batch=65", {}, {}, "a piece cannot be larger than effective_batch=64"),
        ("micro_batch=auto", {}, {}, None),
        ("micro_batch=1", {}, {"effective_batch": 1}, None),
        ("micro_batch=8", {"manifold": True}, {}, "manifold=true .* use micro_batch=64"),
        ("micro_batch=auto", {"adaptive_first": True}, {}, "adaptive_first=true takes statistics"),
        ("micro_batch=64", {"manifold": True, "adaptive_first": True}, {}, None),
        ("micro_batch=1", {"manifold": True}, {}, "use micro_batch=64"),
        ("teacher=cache_h", {}, {}, None),
        ("teacher=cache_h", {"state_kd": True}, {}, "the cache holds the last"),
        ("teacher=cache_topk", {"state_kd": True}, {}, "the cache holds the last"),
        ("teacher=slice", {"state_kd": True}, {}, None),
        ("parallel=model_per_gpu", {}, {}, None),
        ("parallel=model_per_gpu", {"models": 1}, {}, "models=1 leaves the other GPUs without a model"),
    ],
)
def test_a_level_is_refused_where_it_cannot_be_meant(
    name: str, config: dict[str, Any], levels: dict[str, Any], sentence: str | None
) -> None:
    level, chosen = level_of(name)
    found = level.refused(LatentWireConfig(**config), {**chosen, **levels})
    assert (found is None) if sentence is None else (found and re.search(sentence, found))


@pytest.mark.parametrize(
    ("name", "config", "levels", "expected"),
    [
        ("attn=sdpa", {}, {}, Parity.EXACT),
        ("attn=sdpa", {}, {"lm_dtype": "bf16"}, Parity.TOLERANCE),
        ("attn=sdpa", {}, {"amp": "bf16"}, Parity.TOLERANCE),
        ("encoder_attn=native", {}, {}, Parity.EXACT),
        ("encoder_attn=native", {"dropout": 0.1}, {}, Parity.STOCHASTIC),
    ],
)
def test_a_class_is_loosened_where_numbers_are_rounded_or_drawn_otherwise(
    name: str, config: dict[str, Any], levels: dict[str, Any], expected: Parity
) -> None:
    level, chosen = level_of(name)
    assert level.parity_with(LatentWireConfig(**config), {**chosen, **levels}) is expected
