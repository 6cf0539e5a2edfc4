"""Trainings that ranks share, one after the other: ``python replicated.py FOLDER RANK WORLD CASE...``."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from tiny import BASELINE, INPUTS, TARGETS, Tiny, TinyConfig, go_on
from torch import nn
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from perfsweep.workloads.api import Context, Device
from perfsweep.workloads.training import replicas

PAIRS = TensorDataset(INPUTS, TARGETS)


class Streamed(IterableDataset[Any]):
    """The rows one after the other."""

    def __iter__(self) -> Any:
        return iter(PAIRS)


def shuffled(**how: Any) -> DataLoader[Any]:
    return DataLoader(PAIRS, batch_size=24, shuffle=True, **how)


CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "rows": ({}, {}),
    "sampler": ({"sampler": range(60)}, {}),
    "stream": ({"data": Streamed()}, {}),
    "loader with ragged batches": ({"loader": shuffled}, {}),
    "pieces": ({}, {"micro_batch": 5}),
    "scaled": ({"loss": lambda model, x, y: 0.01 * nn.functional.mse_loss(model(x), y)}, {"amp": "fp16"}),
    "all together": (
        {
            "accumulate": 2,
            "clip_norm": 0.5,
            "schedule": lambda optimizer: lr_scheduler.ExponentialLR(optimizer, gamma=0.8),
            "schedule_every": "epoch",
            "save_every": 2,
        },
        {"micro_batch": 4},
    ),
    "compiled": ({"fullgraph": True}, {"compile": "default", "micro_batch": 8}),
    "a batch each": ({}, {}),
    "a batch each of a sampler's rows": ({"sampler": range(60)}, {}),
    "no exchange": ({}, {}),
}
"""Fields of `Parts`, and levels; batches of 23 rows do not divide among two ranks."""


def shared(name: str, world: int) -> tuple[int, str]:
    """Rows of a batch, and the toggle by which ranks share it, or have one each."""
    return (24 // world, "ddp_weak") if name.startswith("a batch each") else (23, "ddp")


def results(name: str, folder: Path, rank: int = 0, world: int = 1) -> dict[str, Any]:
    """Train five iterations, and return what they computed."""
    fields, levels = CASES[name]
    workload = Tiny(fields)
    context = Context(Device(cores=2, compiler=True), folder, folder, rank=rank, world=world)
    rows, toggle = shared(name, world)
    parallel = {toggle: world if world > 1 else "off"}
    # generating code is not what is tested, and takes ten seconds
    with mock.patch.object(torch, "compile", functools.partial(torch.compile, backend="aot_eager")):
        workload.setup(TinyConfig(rows), {**BASELINE, **levels, **parallel}, context)
    workload.prepare_evidence()
    go_on(workload, 5)
    found = workload.evidence()
    shown = {"progress": workload.progress(), "numbers": workload.numbers(), "counters": workload.counters()}
    workload.close()
    return {**found.tensors, **shown, "logged": float(workload._losses.history[-1])}


def without_exchange(self: replicas.Replicas, last: bool, counts: Any) -> None:
    """Mutant: no gradient is ever exchanged."""
    self._replica.require_backward_grad_sync = False


def main(folder: Path, rank: int, world: int, cases: Sequence[str]) -> None:
    """Take part as one of the ranks, and write what all cases computed."""
    torch.set_num_threads(1)
    meet = (folder / "meet").absolute().as_uri()
    dist.init_process_group("gloo", init_method=meet, rank=rank, world_size=world)
    own = folder / str(rank)
    own.mkdir()
    found = {}
    for name in cases:
        if name == "no exchange":
            replicas.Replicas.before_piece = without_exchange
        found[name] = results(name, own, rank, world)
    torch.save(found, own / "found.pt")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
    os._exit(0)  # as trials do: threads of the process group may abort while the interpreter is torn down
