"""Two processes over gloo compute what one computes: rows split, models split, weights cut."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

RANK = """
import json, os, sys
from pathlib import Path
import torch
import torch.distributed as dist
from perfsweep.pipelines.plan.arms import Space
from perfsweep.workloads.api import Context, Device, NullClock
from perfsweep.workloads.latentwire.config import LatentWireConfig
from perfsweep.workloads.latentwire.workload import LatentWire

torch.set_num_threads(1)
folder, rank, world, cases = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), json.loads(sys.argv[4])
if world > 1:
    meet = (folder / "meet").absolute().as_uri()
    dist.init_process_group("gloo", init_method=meet, rank=rank, world_size=world)
here, found = Device(cores=2, compiler=True), {}
for name, (levels, more) in cases.items():
    config = LatentWireConfig(preset="test", tokenizer="bytes", dtype="float64", max_prompt=200, **more)
    chosen = {"effective_batch": 4, "micro_batch": 2, **levels}
    workload = LatentWire()
    workload.setup(
        config,
        Space(LatentWire.toggles, config, here).closure(chosen),
        Context(here, folder, folder, rank=rank, world=world),
    )
    workload.prepare_evidence()
    for _ in range(3):
        workload.step(NullClock())
    shown = workload.evidence().tensors
    found[name] = {**shown, "counters": workload.counters(), "progress": workload.progress()}
    workload.close()
if rank == 0:
    torch.save(found, folder / "found.pt")
if world > 1:
    dist.barrier()
    dist.destroy_process_group()
os._exit(0)  # as trials do: threads of the process group may abort while the interpreter is torn down
"""
"""Trainings that ranks share, one after the other: importing torch takes longer than one of them."""

Case = tuple[dict[str, Any], dict[str, Any]]
"""Levels, and fields of the configuration."""


def train(folder: Path, world: int, cases: dict[str, Case]) -> dict[str, dict[str, Any]]:
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", RANK, str(folder)]
    ranks = [
        subprocess.Popen([*command, str(rank), str(world), json.dumps(cases)], env=env)
        for rank in range(world)
    ]
    try:
        assert [rank.wait(timeout=600) for rank in ranks] == [0] * world
    finally:
        for rank in ranks:
            rank.kill()
    return torch.load(folder / "found.pt", weights_only=False)


ADDED = {"lora_rank": 4, "lora_targets": ["q", "v", "down"], "deep_prefix": True}
FAST = {"passes": "merged", "model_backward": "per_model", "sync": "late", "teacher": "cache_h"}
SHARED = {
    "ddp, fast": {"parallel": "ddp", **FAST},
    "model_per_gpu": {"parallel": "model_per_gpu"},
    "fsdp": {"parallel": "fsdp"},
    "fsdp, fast": {"parallel": "fsdp", **FAST},
}


@pytest.fixture(scope="module")
def alone(tmp_path_factory) -> dict[str, Any]:
    return train(tmp_path_factory.mktemp("alone"), 1, {"alone": ({}, {})})["alone"]


@pytest.fixture(scope="module")
def alone_with_additions(tmp_path_factory) -> dict[str, Any]:
    return train(tmp_path_factory.mktemp("alone"), 1, {"alone": ({}, ADDED)})["alone"]


@pytest.fixture(scope="module")
def together(tmp_path_factory) -> dict[str, dict[str, Any]]:
    """What two ranks trained on each path, without and with what is added to the models."""
    plain: dict[str, Case] = {name: (levels, {}) for name, levels in SHARED.items()}
    added: dict[str, Case] = {f"{name}, added": (levels, ADDED) for name, levels in SHARED.items()}
    return train(tmp_path_factory.mktemp("together"), 2, {**plain, **added})


def assert_trained_alike(found: dict[str, Any], alone: dict[str, Any]) -> None:
    for name in ("terms", "gradient", "losses"):
        assert (found[name] - alone[name]).norm() / alone[name].norm() <= 1e-10, name
    assert torch.equal(found["greedy_ids"], alone["greedy_ids"])
    assert found["progress"] == alone["progress"] == 12


def assert_ranks_exchanged(found: dict[str, Any], alone: dict[str, Any], sharded: bool) -> None:
    assert found["counters"]["ranks"] == 2 * alone["counters"]["ranks"]
    assert found["counters"]["reduced_bytes"] > 0
    assert (found["counters"]["gathered_bytes"] > 0) == sharded


@pytest.mark.workloads
def test_two_ranks_train_as_one_process(tmp_path, alone) -> None:
    found = train(tmp_path, 2, {"ddp": ({"parallel": "ddp"}, {})})["ddp"]
    assert_trained_alike(found, alone)
    assert_ranks_exchanged(found, alone, sharded=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", SHARED)
def test_two_ranks_train_as_one_process_on_every_path(together, alone, name) -> None:
    assert_trained_alike(together[name], alone)
    assert_ranks_exchanged(together[name], alone, sharded="fsdp" in name)


@pytest.mark.slow
@pytest.mark.parametrize("name", SHARED)
def test_two_ranks_train_what_is_added_to_the_models_too(together, alone_with_additions, name) -> None:
    assert_trained_alike(together[f"{name}, added"], alone_with_additions)
