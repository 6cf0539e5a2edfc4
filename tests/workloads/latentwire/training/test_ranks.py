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
from contextlib import nullcontext
from pathlib import Path
import torch
import torch.distributed as dist
from pipelines.plan.arms import Space
from workloads.api import Context, Device, NullClock
from workloads.latentwire.config import LatentWireConfig
from workloads.latentwire.workload import LatentWire

torch.set_num_threads(1)
folder, rank, world, levels = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), json.loads(sys.argv[4])
if world > 1:
    meet = (folder / "meet").absolute().as_uri()
    dist.init_process_group("gloo", init_method=meet, rank=rank, world_size=world)
here = Device(cores=2, compiler=True)
more = json.loads(sys.argv[5])
config = LatentWireConfig(preset="test", tokenizer="bytes", dtype="float64", max_prompt=200, **more)
levels = Space(LatentWire.toggles, config, here).closure({"effective_batch": 4, "micro_batch": 2, **levels})
workload = LatentWire()
workload.setup(config, levels, Context(here, folder, folder, rank=rank, world=world))
workload.prepare_evidence()
for _ in range(3):
    workload.step(NullClock())
found = workload.evidence()
counters = workload.counters()
if rank == 0:
    torch.save({**found.tensors, "counters": counters, "progress": workload.progress()}, folder / "found.pt")
if world > 1:
    dist.barrier()
    dist.destroy_process_group()
os._exit(0)  # as trials do: threads of the process group may abort while the interpreter is torn down
"""


def train(folder: Path, world: int, config: dict[str, Any], **levels) -> dict[str, Any]:
    folder.mkdir()
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", RANK, str(folder)]
    ranks = [
        subprocess.Popen([*command, str(rank), str(world), json.dumps(levels), json.dumps(config)], env=env)
        for rank in range(world)
    ]
    try:
        assert [rank.wait(timeout=600) for rank in ranks] == [0] * world
    finally:
        for rank in ranks:
            rank.kill()
    return torch.load(folder / "found.pt", weights_only=False)


@pytest.fixture(scope="module")
def alone(tmp_path_factory) -> dict[str, Any]:
    return train(tmp_path_factory.mktemp("ranks") / "alone", 1, {})


ADDED = {"lora_rank": 4, "lora_targets": ["q", "v", "down"], "deep_prefix": True}


@pytest.fixture(scope="module")
def alone_with_additions(tmp_path_factory) -> dict[str, Any]:
    return train(tmp_path_factory.mktemp("ranks") / "alone", 1, ADDED)


FAST = {
    "passes": "merged",
    "lm_layers": "fused",
    "model_backward": "per_model",
    "sync": "late",
    "teacher": "cache_h",
}


@pytest.mark.parametrize(
    ("level", "more"),
    [
        pytest.param("ddp", {}, marks=pytest.mark.workloads),
        pytest.param("ddp", FAST, marks=pytest.mark.slow),
        pytest.param("model_per_gpu", {}, marks=pytest.mark.slow),
        pytest.param("fsdp", {}, marks=pytest.mark.slow),
        pytest.param("fsdp", FAST, marks=pytest.mark.slow),
    ],
)
def test_two_ranks_train_as_one_process(tmp_path, alone, level, more) -> None:
    found = train(tmp_path / level, 2, {}, parallel=level, **more)
    for name in ("terms", "gradient", "losses"):
        assert (found[name] - alone[name]).norm() / alone[name].norm() <= 1e-10, name
    assert torch.equal(found["greedy_ids"], alone["greedy_ids"])
    assert found["progress"] == alone["progress"] == 12
    assert found["counters"]["ranks"] == 2 * alone["counters"]["ranks"]
    assert found["counters"]["reduced_bytes"] > 0
    assert (found["counters"]["gathered_bytes"] > 0) == (level == "fsdp")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("level", "more"), [("ddp", FAST), ("model_per_gpu", {}), ("fsdp", {}), ("fsdp", FAST)]
)
def test_two_ranks_train_what_is_added_to_the_models_too(tmp_path, alone_with_additions, level, more) -> None:
    found = train(tmp_path / level, 2, ADDED, parallel=level, **more)
    for name in ("terms", "gradient", "losses"):
        difference = (found[name] - alone_with_additions[name]).norm() / alone_with_additions[name].norm()
        assert difference <= 1e-10, name
    assert torch.equal(found["greedy_ids"], alone_with_additions["greedy_ids"])
