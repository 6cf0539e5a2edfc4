"""Toggles from outside: each level acts, keeps to its class, and shows it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from loops import ATTENTION, IMAGES
from script_levels import counters, evidence, verdict, witness

from perfsweep.pipelines.parity.results import ParityVerdict
from perfsweep.workloads.api import LevelValue
from perfsweep.workloads.script import toggles
from perfsweep.workloads.script.changes.scene import Call, Scene, nothing, wrap

LEVELS: list[tuple[str, dict[str, Any]]] = [
    (ATTENTION, {"amp": "bf16"}),
    (ATTENTION, {"amp": "fp16"}),
    (ATTENTION, {"compile": "default"}),
    (ATTENTION, {"optimizer": "foreach"}),
    (ATTENTION, {"optimizer": "fused"}),
    (IMAGES, {"channels_last": "on"}),
    (ATTENTION, {"sdpa": "math"}),
    (ATTENTION, {"zero_grad": "zero"}),
    (IMAGES, {"zero_grad": "none"}),
    (ATTENTION, {"grad_checkpointing": "on"}),
    (ATTENTION, {"gc": "frozen"}),
    (ATTENTION, {"gc": "off"}),
    (ATTENTION, {"threads": 3}),
    (ATTENTION, {"num_workers": 1}),
    (ATTENTION, {"persistent_workers": "on", "num_workers": 1}),
    (ATTENTION.replace("shuffle=True", "num_workers=1"), {"prefetch_factor": 1}),
]
pytestmark = pytest.mark.workloads

each_level = pytest.mark.parametrize(("script", "levels"), LEVELS, ids=[str(levels) for _, levels in LEVELS])

BLOCKS: dict[str, Any] = {"blocks": "Block"}


@pytest.fixture(autouse=True)
def compiles_quickly(no_generated_code: None) -> None:
    torch._dynamo.reset()


@each_level
def test_a_level_keeps_to_its_class(script: str, levels: dict[str, Any], tmp_path: Path) -> None:
    found = verdict(evidence(script, tmp_path), evidence(script, tmp_path, **levels, **BLOCKS), **levels)
    assert found.verdict in (ParityVerdict.IDENTICAL, ParityVerdict.WITHIN_TOLERANCE), found.reason


@each_level
def test_a_level_moves_its_witness_and_without_its_change_does_not(
    script: str, levels: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, value = next(iter(levels.items()))
    moved = counters(script, tmp_path, **levels, **BLOCKS)
    idle = dataclasses.replace(toggles.CHANGES[name], begin=nothing, prepare=nothing)
    monkeypatch.setitem(toggles.CHANGES, name, idle)
    counter = witness(name, value)
    assert counters(script, tmp_path, **levels, **BLOCKS)[counter] != moved[counter]


@pytest.mark.parametrize(("name", "value"), [("amp", "bf16"), ("optimizer", "fused")])
def test_a_level_that_computes_something_else_is_found(
    name: str, value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right, levels = toggles.CHANGES[name], {name: value}

    def begin(scene: Scene, level: LevelValue) -> None:
        right.begin(scene, level)
        for module in scene.modules:
            wrap(module, _larger)

    monkeypatch.setitem(toggles.CHANGES, name, dataclasses.replace(right, begin=begin))
    found = verdict(evidence(ATTENTION, tmp_path), evidence(ATTENTION, tmp_path, **levels), **levels)
    assert found.verdict is ParityVerdict.DIFFERENT


def _larger(call: Call) -> Call:
    return lambda *args: call(*args) * 1.2


def test_what_stands_inside_ddp_is_compiled_and_its_call_autocast(tmp_path: Path) -> None:
    distributed = IMAGES.replace(
        "optimizer =",
        "import torch.distributed as dist\n"
        "dist.init_process_group('gloo', store=dist.HashStore(), rank=0, world_size=1)\n"
        "model = nn.parallel.DistributedDataParallel(model)\noptimizer =",
    )
    try:
        found = counters(distributed, tmp_path, amp="bf16", compile="default")
    finally:
        torch.distributed.destroy_process_group()
    assert found["compiled_graphs"] and found["low_precision_ops"]


def test_kept_workers_leave_the_order_of_rows_over_epochs(tmp_path: Path) -> None:
    workers = {"num_workers": 1, "steps": 8}  # epochs of three iterations
    kept = evidence(ATTENTION, tmp_path, persistent_workers="on", **workers)
    assert torch.equal(kept.tensors["losses"], evidence(ATTENTION, tmp_path, **workers).tensors["losses"])
