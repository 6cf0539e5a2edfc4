"""What two steps of some arms count and lead to, how answers are judged, and which levels go together."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from declared import described, faults, lines

from perfsweep.pipelines.parity.deviations import judge
from perfsweep.pipelines.parity.results import ParityVerdict
from perfsweep.workloads.api import Device, Evidence, Parity
from perfsweep.workloads.latentwire import variants
from perfsweep.workloads.latentwire.config import LatentWireConfig
from perfsweep.workloads.latentwire.declaration import CHECKS
from perfsweep.workloads.latentwire.variants import FAST_EXACT, TOGGLES, encoding, fused_attention, loading

TWO_STEPS = json.loads(Path(__file__).with_name("two_steps.json").read_text())
"""Counts of each arm's two steps, zeros left out, losses, and the norm of what is trained after them."""


def _levels(text: str) -> dict:
    pairs = (word.split("=") for word in text.split())
    return {name: int(level) if level.isdigit() else level for name, level in pairs}


ARMS: dict[str, tuple[dict, dict]] = {
    "naive": ({}, {}),
    # Without the native kernels, which take seconds to build.
    "fast": ({**FAST_EXACT, "encoder_attn": "sdpa", "products": "library", "micro_batch": 4}, {}),
    "halved": (
        _levels(
            """loader=dataloader tokenise=pre bucket=window encoder_trim=batch_max answer_trim=batch_max
            decode=batched oom=backoff micro_batch=2 k_loss=kv teacher=slice_header attn=sdpa
            grad_checkpointing=selective empty_cache=epoch optimizer=foreach calibration=once"""
        ),
        {"oom_above": 1, "eval_every": 2, "data_n": 8},
    ),
    "stored": (
        _levels(
            """grad_checkpointing=on k_loss=batched teacher=slice resident_data=on tokenise=cache
            lm_dtype=bf16 logits=slice bucket=global"""
        ),
        {"dtype": "float32"},
    ),
    "all terms": (
        _levels("k_loss=batched passes=merged teacher=slice"),
        {"manifold": True, "adaptive_first": True, "state_kd": True, "lora_rank": 2, "deep_prefix": True},
    ),
}


@pytest.mark.workloads
@pytest.mark.parametrize("arm", ARMS)
def test_two_steps_count_their_work_and_lead_where_they_led(start, run, arm: str) -> None:
    levels, config = ARMS[arm]
    workload = run(start(levels, **{"dtype": "float64", "lr": 0.3, **config}), 2)
    norm, shape = workload.numbers()["parameter_norm"], workload.arm.shape
    found = {name: value for name, value in workload.counters().items() if value}
    found |= {f"loss {number}": value for number, value in enumerate(workload.arm.history)}
    found |= {name: getattr(shape, name) for name in ("trim", "trim_answers", "effective", "micro")}
    near = 1e-2 if "dtype" in config else 1e-4
    assert {**found, "norm": norm} == pytest.approx(TWO_STEPS[arm], rel=near)


def evidence(ids: list[list[int]], close: list[list[bool]]) -> Evidence:
    tensors = {check.name: torch.ones(3) for check in CHECKS}
    return Evidence({**tensors, "greedy_ids": torch.tensor(ids), "greedy_close": torch.tensor(close)}, {})


@pytest.mark.parametrize(
    ("arm", "close", "verdict"),
    [
        ([[1, 2], [3, 4]], [[False, False], [False, False]], ParityVerdict.IDENTICAL),
        ([[1, 5], [3, 4]], [[False, True], [False, False]], ParityVerdict.WITHIN_TOLERANCE),
        ([[1, 5], [3, 4]], [[False, False], [False, True]], ParityVerdict.DIFFERENT),
    ],
)
def test_another_choice_is_excused_where_the_runner_up_was_close(arm, close, verdict) -> None:
    reference = evidence([[1, 2], [3, 4]], close)
    found = judge(reference, evidence(arm, close), CHECKS, Parity.TOLERANCE, {})
    assert (found.verdict is ParityVerdict.DIFFERENT) == (verdict is ParityVerdict.DIFFERENT), found


def test_every_level_has_a_witness_and_bounds_and_no_declaration_imports_torch() -> None:
    assert faults(TOGGLES, variants) == []
    assert {one.toggle.name for one in loading.VARIANTS} <= {toggle.name for toggle in TOGGLES}


def test_layers_are_split_over_several_gpus_and_ranks_have_a_host_or_several_gpus() -> None:
    (toggle,) = (one for one in TOGGLES if one.name == "parallel")
    devices = (Device(), Device("cuda", 1), Device("cuda", 4))
    acts = {
        one.value: tuple(one.unsupported(device) is None for device in devices) for one in toggle.levels[1:]
    }
    ranks = dict.fromkeys(("ddp", "model_per_gpu", "fsdp"), (True, False, True))
    assert acts == {"layer_split": (False, False, True), **ranks}


def test_levels_are_exact_unless_a_configuration_rounds_or_draws_otherwise() -> None:
    sdpa, native = (
        fused_attention.VARIANTS[0].toggle.level("sdpa"),
        encoding.VARIANTS[1].toggle.level("native"),
    )
    assert sdpa.loosened is not None and native.loosened is not None
    for half in ({"lm_dtype": "bf16"}, {"amp": "fp16"}):
        assert sdpa.loosened(None, {"lm_dtype": "fp32", "amp": "off", **half}) is Parity.TOLERANCE
    assert sdpa.loosened(None, {"lm_dtype": "fp32", "amp": "off"}) is None
    assert native.loosened(LatentWireConfig(dropout=0.1), {}) is Parity.STOCHASTIC
    assert native.loosened(LatentWireConfig(dropout=0.0), {}) is None


DECLARED = """
pin_memory off, 1: on (pinned_batches on old+gpu told)
non_blocking off, 1: on (unwaited_copies pin_memory=on on old+gpu told)
prefetch off, 1: stream (prefetched_batches on old+gpu told)
resident_data off, 1: on (host_copies tokenise=pre|cache)
loader index, 2: dataloader (loader_batches resident_data!on), resident_index (loader_batches
  resident_data=on)
num_workers 0 told, 2, any integer from 0 to 64 worker_batches loader=dataloader told: 2/4 (worker_batches
  loader=dataloader told)
tokenise per_batch, 3: pre/cache (rows_tokenised)
accum graph_sum, 4: backward_each (graphs_kept)
model_backward joint: per_model (backward_calls accum=backward_each)
micro_batch 1 refused told, 5, any integer from 1 micro_steps refused told: 8/32/64/auto (micro_steps refused
  told)
effective_batch 64 refused, 5, any integer from 1 examples_per_step stochastic refused: 256/1024
  (examples_per_step stochastic refused)
k_loss sequential, 6 and 8: kv/batched (student_positions)
passes separate: merged (student_passes k_loss=batched)
logits all: slice (head_rows)
last_block full: pruned (lm_flops logits=slice passes=merged)
teacher recompute, 8: slice (teacher_head_rows), slice_header (teacher_positions), cache_h (teacher_rows
  tokenise=pre|cache refused)
encoder_trim full_512, Architecture 3: batch_max (encoder_positions)
encoder_attn sdpa, Architecture 3: native (encoder_kernels on cpu loosened)
answer_trim full: batch_max (student_positions compile!block|reduce_overhead)
calibration per_step, Architecture 3: once (table_reads)
attn eager, Architecture 2: sdpa (attention_kernels loosened), flash (attention_kernels tolerance terms<0.01
  grad_norm<0.01 gradient<0.02 gradient_direction<0.001 losses<0.02 replay/*<0.02 on old+gpu)
lm_dtype fp32, 7: bf16 (lm_bytes tolerance terms<0.01 grad_norm<0.01 gradient<0.02 gradient_direction<0.001
  losses<0.02 replay/*<0.02)
amp off, 7: bf16 (low_precision_ops tolerance terms<0.01 grad_norm<0.01 gradient<0.02
  gradient_direction<0.001 losses<0.02 replay/*<0.02 told), fp16 (low_precision_ops tolerance terms<0.01
  grad_norm<0.01 gradient<0.02 gradient_direction<0.001 losses<0.02 replay/*<0.02 on old+gpu told)
products library: native (native_products on cpu)
optimizer default, Quick win 4: foreach/fused (ops terms<1e-06 grad_norm<1e-06 gradient<1e-06 told)
sync chatty, Monitoring: late (syncs)
grad_checkpointing off, Architecture 1: on (saved_bytes told), selective (saved_bytes)
bucket off, Memory 2: window (padded_positions), global (padded_positions stochastic)
compile off: block (compiled_graphs tolerance terms<1e-05 grad_norm<1e-05 gradient<1e-05 on old+gpu+cpu),
  reduce_overhead (cudagraph_recordings tolerance terms<1e-05 grad_norm<1e-05 gradient<1e-05 on old+gpu)
empty_cache never, Memory 4: epoch/step (cache_releases on old+gpu)
parallel single, Memory 3: layer_split (devices_used on ), ddp/fsdp (ranks terms<1e-05 grad_norm<1e-05
  gradient<1e-05 on cpu+bare), model_per_gpu (ranks terms<1e-05 grad_norm<1e-05 gradient<1e-05 on cpu+bare
  refused)
oom die, Risks: backoff (retries)
decode per_row: batched (decode_calls)
"""
"""Baseline and section, then each level: its witness, class and bounds, what it needs and excludes."""


def test_every_level_declares_what_it_changes_and_what_it_needs() -> None:
    assert list(described(TOGGLES)) == lines(DECLARED)
