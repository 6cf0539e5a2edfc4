"""Two processes over gloo compute what one computes: rows split, models split, weights cut."""

from __future__ import annotations

import json
import os
import subprocess
import sys
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
folder, rank, cases = Path(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3])
dist.init_process_group("gloo", init_method=(folder / "meet").as_uri(), rank=rank, world_size=2)
here, found = Device(cores=2, compiler=True), {}
for name, (levels, more) in cases.items():
    config = LatentWireConfig(preset="test", tokenizer="bytes", dtype="float64", max_prompt=200, **more)
    chosen = Space(LatentWire.toggles, config, here).closure(
        {"effective_batch": 4, "micro_batch": 2, **levels}
    )
    workload = LatentWire()
    workload.setup(config, chosen, Context(here, folder, folder, rank=rank, world=2))
    workload.prepare_evidence()
    for _ in range(3):
        workload.step(NullClock())
    shown = workload.evidence().tensors
    found[name] = {**shown, "counters": workload.counters(), "progress": workload.progress()}
    workload.close()
if rank == 0:
    torch.save(found, folder / "found.pt")
dist.barrier()
dist.destroy_process_group()
os._exit(0)  # as trials do: threads of the process group may abort while the interpreter is torn down
"""
"""Trainings that ranks share, one after the other: importing torch takes longer than one of them."""

ADDED = {"lora_rank": 4, "lora_targets": ["q", "v", "down"], "deep_prefix": True}
FAST = {"passes": "merged", "model_backward": "per_model", "sync": "late", "teacher": "cache_h"}
SHARED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "ddp": ({"parallel": "ddp"}, {}),
    "ddp, fast": ({"parallel": "ddp", **FAST}, ADDED),
    "model_per_gpu": ({"parallel": "model_per_gpu"}, ADDED),
    "fsdp": ({"parallel": "fsdp"}, {}),
    "fsdp, fast": ({"parallel": "fsdp", **FAST}, ADDED),
}
"""Levels, and fields of the configuration: on some paths with what is added to the models."""


@pytest.fixture(scope="module")
def together(tmp_path_factory) -> dict[str, dict[str, Any]]:
    """What two ranks trained on each path."""
    folder = tmp_path_factory.mktemp("together")
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", RANK, str(folder)]
    ranks = [subprocess.Popen([*command, str(rank), json.dumps(SHARED)], env=env) for rank in range(2)]
    try:
        assert [rank.wait(timeout=600) for rank in ranks] == [0, 0]
    finally:
        for rank in ranks:
            rank.kill()
    return torch.load(folder / "found.pt", weights_only=False)


@pytest.mark.workloads
@pytest.mark.parametrize("name", SHARED)
def test_two_ranks_train_as_one_process(together, start, run, name) -> None:
    found, one = together[name], {"effective_batch": 4, "micro_batch": 2}
    workload = run(start(one, kind="evidence", small=False, dtype="float64", **SHARED[name][1]), 3)
    alone, counters = workload.evidence().tensors, workload.counters()
    for tensor in ("terms", "gradient", "losses"):
        assert (found[tensor] - alone[tensor]).norm() / alone[tensor].norm() <= 1e-10, tensor
    assert torch.equal(found["greedy_ids"], alone["greedy_ids"])
    assert found["progress"] == workload.progress() == 12
    assert found["counters"]["ranks"] == 2 * counters["ranks"]
    assert found["counters"]["reduced_bytes"] > 0
    assert (found["counters"]["gathered_bytes"] > 0) == ("fsdp" in name)
