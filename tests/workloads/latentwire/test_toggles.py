"""What two steps of some arms count and lead to, how answers are judged, and which levels go together."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from declared import faults
from tables.latentwire import FORBIDDEN

from perfsweep.pipelines.parity.deviations import judge
from perfsweep.pipelines.parity.results import ParityVerdict
from perfsweep.pipelines.plan.arms import Space
from perfsweep.workloads.api import Device, Evidence, Parity
from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.latentwire import variants
from perfsweep.workloads.latentwire.config import LatentWireConfig
from perfsweep.workloads.latentwire.declaration import CHECKS
from perfsweep.workloads.latentwire.variants import FAST_EXACT, TOGGLES, encoding, fused_attention, loading

GPU = Device("cuda", 1, "H200", 140 * 2**30, (9, 0), compiler=True)

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


@pytest.mark.parametrize(("levels", "word"), FORBIDDEN, ids=str)
def test_a_level_without_what_it_needs_or_with_what_it_cannot_have_is_refused(levels, word: str) -> None:
    with pytest.raises(ConfigError, match=rf"\b{word}\b"):
        Space(TOGGLES, LatentWireConfig(), GPU).legal(levels)


def test_every_level_has_a_witness_and_bounds_and_no_declaration_imports_torch() -> None:
    assert faults(TOGGLES, variants) == []
    assert {one.toggle.name for one in loading.VARIANTS} <= {toggle.name for toggle in TOGGLES}


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
