"""What no level can mean of a configuration, and what levels leave to others."""

from __future__ import annotations

from typing import Any

import pytest
from declared import described, faults, lines

from perfsweep.workloads.api import Parity
from perfsweep.workloads.spd import variants
from perfsweep.workloads.spd.config import SpdConfig
from perfsweep.workloads.spd.variants import TOGGLES, arm, cuda_graph, host_work, masking, updating


@pytest.mark.parametrize(
    ("toggle", "same", "others"),
    [
        (cuda_graph.CUDA_GRAPH, {"frozen_draws": True}, [{}]),
        (masking.STACK_MODULES, {}, [{"canonical_draws": False}]),
        (
            updating.MICRO_BATCH,
            {"frozen_draws": True, "beta": 0.0},
            [{"frozen_draws": True, "beta": 0.5}, {"beta": 0.0}],
        ),
    ],
    ids=lambda one: getattr(one, "name", None),
)
def test_masks_are_others_unless_a_configuration_keeps_them(
    toggle: Any, same: dict[str, Any], others: list[dict[str, Any]]
) -> None:
    loosened = toggle.levels[1].loosened
    assert loosened is not None
    assert loosened(SpdConfig(**same), {}) is None
    assert {loosened(SpdConfig(**other), {}) for other in others} == {Parity.STOCHASTIC}


@pytest.mark.parametrize(
    ("toggle", "level", "switch"),
    [
        *(("pin_memory", "on", "pinned"), ("non_blocking", "on", "non_blocking"), ("tf32", "on", "tf32")),
        *(("cuda_graph", "on", "capturable"), ("fused_target_ops", "on", "fused_target")),
        *(("delta", "folded", "folds"), ("stack_modules", "stacked", "stacked")),
    ],
)
def test_a_level_that_is_a_switch_of_the_reference_sets_it(toggle: str, level: str, switch: str) -> None:
    base = {one.name: one.levels[0].value for one in TOGGLES}
    off, on = (getattr(arm({**base, toggle: value}), switch) for value in (base[toggle], level))
    assert (off, on) == (False, True)


def test_levels_are_declared_without_faults_and_the_profiler_is_the_reports() -> None:
    assert faults(TOGGLES, variants) == []
    assert (host_work.WAIT, host_work.WARMUP, host_work.ACTIVE) == (1, 1, 3)


DECLARED = """
pin_memory off, 1.1: on (pinned_batches on old+gpu told)
num_workers 0 told, 1.2, any integer from 0 to 64 worker_batches refused told: 2/4/8 (worker_batches refused
  told)
compile off, 2: ci_fns (compiled_graphs tolerance losses<1e-05 gradients<0.0001 on old+gpu+cpu),
  target/breaks (compiled_graphs tolerance losses<1e-05 patching=wrapper|persistent_hooks on old+gpu+cpu),
  losses (compiled_graphs tolerance losses<1e-05 on old+gpu+cpu), masked_pass/full (compiled_graphs tolerance
  losses<0.0001 importance_mean<0.0001 importance_worst<0.0001 patching=wrapper grad_checkpointing!per_block
  routed_rows!gathered on old+gpu+cpu)
non_blocking off, 3.1: on (unwaited_copies pin_memory=on on old+gpu told)
prefetch off, 3.2: stream (prefetched_batches on old+gpu told)
tf32 off, 4.1: on (tf32_products tolerance losses<0.01 importance_mean<0.001 importance_worst<0.01 on gpu
  told)
amp off, 4: bf16 (low_precision_ops tolerance losses<0.005 importance_mean<0.002 importance_worst<0.01 told),
  fp16 (low_precision_ops tolerance losses<0.01 importance_mean<0.001 importance_worst<0.01
  pgd_inner=detached refused told)
patching temp_hooks, 5.1: persistent_hooks/wrapper (hook_registrations)
prefix_reuse off, 5.2: on (flops patching=wrapper refused)
routed_rows all: gathered (flops delta=folded on cpu+bare)
delta naive, 6.1: cached_w (weight_fetches), folded (flops patching=wrapper)
unmasked_form two_step, 6.2: fused (flops)
stack_modules loop, 6.3: stacked (ops patching=wrapper loosened)
pgd_inner full, 6.4: detached (saved_bytes)
pgd_layerwise all_modules, 6.4: single (masked_modules)
pgd_steps n, 6.4: schedule/larger/every_k/persistent (pgd_passes stochastic refused)
checkpoint sync, 7.1: async (background_saves told)
wandb_logging each wandb_calls commits 1, 7.2: commit_false (wandb_commits commits 50), buffered
  (wandb_calls)
gc each_eval, 8.1, owns_collector: rarely/frozen (collections told), oom_only (collections)
grad_checkpointing off, 8.2: per_block (saved_bytes patching=wrapper refused)
free_early off, 8.3: on (held_bytes)
profiler off, 9: events (recorded_events on old+gpu), torch (profiled_steps)
metrics every_step_item: deferred (host_reads)
mask_checks sync: off (host_reads)
target_softmax recompute: cached (softmax_rows divergence<2e-06 losses<0.0001)
micro_batch loop refused told: whole (masked_passes loosened told)
draws torch: native (ops on cpu)
products library: native (native_products on cpu)
optimizer default: foreach/fused (ops told)
cuda_graph off: on (graph_replays metrics=deferred mask_checks=off pgd_steps!schedule|every_k|persistent on
  old+gpu refused loosened)
fused_target_ops off: on (ops losses<1e-05 refused)
gradients autograd: formulas (ops delta=folded stack_modules=stacked mask_checks=off
  compile!target|breaks|ci_fns|losses|masked_pass|full amp!bf16|fp16 grad_checkpointing!per_block refused),
  native (ops delta=folded stack_modules=stacked mask_checks=off
  compile!target|breaks|ci_fns|losses|masked_pass|full amp!bf16|fp16 grad_checkpointing!per_block on cpu
  refused)
loader torch: memmap_batched (row_fetches), gpu_resident (row_fetches pin_memory=off num_workers=0
  non_blocking=off prefetch=off on old+gpu)
"""
"""Baseline and section, then each level: its witness, class and bounds, what it needs and excludes."""


def test_every_level_declares_what_it_changes_and_what_it_needs() -> None:
    assert list(described(TOGGLES)) == lines(DECLARED)
