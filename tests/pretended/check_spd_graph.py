"""SPD's CUDA graph, captured and replayed on a pretended GPU, trains as the eager path does.

Run by `tests/workloads/test_pretended_gpu.py`, in a process that loads the GPU before torch.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from pretend_cuda.graphs import modes

from perfsweep.pipelines.plan.arms import Space
from perfsweep.workloads.api import Context, Device, NullClock
from perfsweep.workloads.spd.config import SpdConfig
from perfsweep.workloads.spd.data import corpus
from perfsweep.workloads.spd.presets import PRESETS
from perfsweep.workloads.spd.training import targets
from perfsweep.workloads.spd.workload import Spd

GPU = Device("cuda", 1, "NVIDIA H100", 80 * 2**30, (9, 0), 2, True)
TOY = {"preset": "tms_5-2_test", "batch_size": 8, "log_every": 1000, "eval_every": 1000, "save_every": 1000}
LEVELS = {"metrics": "deferred", "mask_checks": "off", "optimizer": "fused"}


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few vectors and a short warm-up."""
    torch.set_num_threads(1)
    monkeypatch.setitem(PRESETS, "tms_5-2_test", replace(PRESETS["tms_5-2_test"], warmup_steps=3))
    for module in (targets, corpus):
        monkeypatch.setattr(module, "VECTORS", 2**10)


def started(folder: Path, **levels: Any) -> Spd:
    scratch = folder / f"scratch{len(list(folder.iterdir()))}"
    scratch.mkdir()
    config, workload = SpdConfig(**TOY), Spd()
    context = Context(GPU, scratch_dir=scratch, cache_dir=folder)
    workload.setup(config, Space(Spd.toggles, config, GPU).closure({**LEVELS, **levels}), context)
    return workload


def totals(workload: Spd, iterations: int) -> list[float]:
    found = []
    for _ in range(iterations):
        workload.step(NullClock())
        found.append(workload.arm.total.item())
    return found


def test_replays_train_as_the_eager_path_does(tmp_path: Path) -> None:
    eager, graph = started(tmp_path), started(tmp_path, cuda_graph="on")
    assert totals(graph, 8) == pytest.approx(totals(eager, 8), rel=1e-5)
    assert graph.counters()["graph_replays"] == 5
    assert modes[-1] == "thread_local"  # a loader's thread may pin memory meanwhile


def test_a_graph_that_goes_on_from_a_saved_state_keeps_to_the_schedule(tmp_path: Path) -> None:
    eager, graph = started(tmp_path), started(tmp_path, cuda_graph="on")
    for workload in (eager, graph):
        totals(workload, 5)
        state = workload.state_dict()
        totals(workload, 2)
        workload.load_state_dict(state)
    assert totals(graph, 4) == pytest.approx(totals(eager, 4), rel=1e-5)


@pytest.mark.parametrize(
    ("levels", "witness"),
    [
        ({"pin_memory": "on"}, "pinned_batches"),
        ({"non_blocking": "on"}, "unwaited_copies"),
        ({"prefetch": "stream"}, "prefetched_batches"),
        ({"loader": "gpu_resident"}, "row_fetches"),
        ({"profiler": "events"}, "recorded_events"),
    ],
)
def test_how_rows_travel_and_who_looks_change_no_loss(
    tmp_path: Path, levels: dict[str, Any], witness: str
) -> None:
    base, arm = started(tmp_path), started(tmp_path, **levels)
    assert totals(arm, 3) == totals(base, 3)
    assert arm.counters()[witness] != base.counters()[witness]
