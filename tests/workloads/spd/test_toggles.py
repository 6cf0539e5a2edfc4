"""What choosing a level of SPD implies beside its class, and which counter shows that it acts."""

from __future__ import annotations

import re
from typing import Any

import pytest
import spelled

from workloads.api import Device, Parity
from workloads.spd.config import SpdConfig
from workloads.spd.toggles import TOGGLES, needs_host_rows

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


BASE = {toggle.name: toggle.levels[0].value for toggle in TOGGLES}
TOY = {"preset": "tms_5-2"}


def refusal(name: str, config: dict[str, Any], **levels: Any) -> str | None:
    toggle, value = name.split("=")
    level = next(one for one in TOGGLES if one.name == toggle).level(value)
    return level.refused(SpdConfig(**config), {**BASE, toggle: level.value, **levels})


@pytest.mark.parametrize(
    ("name", "config", "levels", "sentence"),
    [
        ("num_workers=2", {}, {}, None),
        ("num_workers=2", {"iterable": True}, {}, "each worker would repeat all"),
        ("num_workers=2", {"iterable": True, "sharded": True}, {}, None),
        ("num_workers=2", {"sharded": True}, {}, None),
        ("cuda_graph=on", {}, {}, None),
        ("cuda_graph=on", {"drop_last": False}, {}, "a graph has one batch size"),
        ("cuda_graph=on", {}, {"amp": "fp16"}, "the host reads whether scaled gradients overflowed"),
        ("cuda_graph=on", {}, {"amp": "fp16", "optimizer": "fused"}, None),
        ("cuda_graph=on", {}, {"amp": "bf16"}, None),
        ("micro_batch=loop", {}, {}, None),
        ("micro_batch=loop", {"microbatches": 2}, {}, "microbatches=2 cannot share adversarial sources"),
        ("micro_batch=loop", {"microbatches": 2, "pgd_scope": "datapoint"}, {}, None),
        ("kl_chunk=1024", {}, {}, None),
        ("kl_chunk=7", TOY, {}, "has no vocabulary to cut up"),
        ("kl_chunk=7", {"target": "m:f", "tokens_path": "t", "modules": ["a"]}, {}, "no stages and no head"),
        ("gradients=native", TOY, {}, None),
        ("gradients=formulas", {**TOY, "microbatches": 2}, {"micro_batch": "whole"}, None),
        ("gradients=formulas", {**TOY, "microbatches": 2}, {}, "take a batch in one piece, not in .*=2"),
        ("gradients=formulas", {}, {}, "are those of a toy"),
        ("gradients=formulas", {**TOY, "counts": {"linear1": 20, "linear2": 21}}, {}, "equally many"),
        ("gradients=formulas", {**TOY, "modules": ["linear1"]}, {}, "are those of a toy"),
        (
            "gradients=formulas",
            {**TOY, "coefficients": {"pgd": 1.0}},
            {},
            "of the terms minimality, stochastic",
        ),
        ("gradients=formulas", {**TOY, "importance": "shared_mlp"}, {}, "with one hidden layer"),
        ("gradients=formulas", {**TOY, "hidden": [8, 8]}, {}, "with one hidden layer"),
        ("gradients=formulas", {**TOY, "sigmoid": "hard"}, {}, "with one hidden layer"),
        ("gradients=formulas", {**TOY, "sampling": "binomial"}, {}, "sampling=continuous, not of binomial"),
        ("prefix_reuse=on", {"target": "m:f", "tokens_path": "t", "modules": ["a"]}, {}, "no stages"),
    ],
)
def test_a_level_is_refused_where_it_cannot_be_meant(
    name: str, config: dict[str, Any], levels: dict[str, Any], sentence: str | None
) -> None:
    found = refusal(name, config, **levels)
    assert (found is None) if sentence is None else (found and re.search(sentence, found))


@pytest.mark.parametrize(
    ("name", "config", "stochastic"),
    [
        ("micro_batch=whole", {"frozen_draws": True}, False),
        ("micro_batch=whole", {"frozen_draws": True, "beta": 0.5}, True),
        ("micro_batch=whole", {}, True),
        ("stack_modules=stacked", {}, False),
        ("stack_modules=stacked", {"canonical_draws": False}, True),
        ("cuda_graph=on", {"frozen_draws": True, "beta": 0.5}, False),
        ("cuda_graph=on", {}, True),
    ],
)
def test_a_level_that_draws_otherwise_is_compared_as_such(
    name: str, config: dict[str, Any], stochastic: bool
) -> None:
    toggle, value = name.split("=")
    level = next(one for one in TOGGLES if one.name == toggle).level(value)
    expected = Parity.STOCHASTIC if stochastic else Parity.EXACT
    assert level.parity_with(SpdConfig(**config), BASE) is expected


def test_routed_rows_are_gathered_on_hosts_alone() -> None:
    assert needs_host_rows(Device()) is None
    assert "and cuda would wait" in (needs_host_rows(Device(type="cuda")) or "")
