"""Builders for jobs on small problems; one cache of minimisers and trained codes for the whole session."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from perfsweep.pipelines.plan.arms import Space
from perfsweep.workloads.api import Context, Device, NullClock
from perfsweep.workloads.probe1d.config import Probe1DConfig
from perfsweep.workloads.probe1d.workload import Probe1D

HERE = Device(compiler=True)
sys.path.insert(0, str(Path(__file__).with_name("maths")))  # the family of hard cases is imported by name


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, logger="perfsweep.probe1d")


@pytest.fixture(scope="session")
def cache_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("probe1d")


@pytest.fixture
def set_up(cache_dir: Path, tmp_path: Path) -> Callable[..., Probe1D]:
    """A workload ready for its first step. Levels that are not given follow from those that are."""

    def build(
        levels: Mapping[str, Any],
        kind: str = "evidence",
        device: Device = HERE,
        budget: int | None = None,
        **config: Any,
    ) -> Probe1D:
        made = Probe1DConfig(**config)
        rows: list[Mapping[str, float]] = []
        context = Context(
            device=device, scratch_dir=tmp_path, cache_dir=cache_dir, log=rows.append, memory_budget=budget
        )
        workload = Probe1D()
        workload.setup(made, Space(Probe1D.toggles, made, device).closure(levels), context)
        if kind == "evidence":
            workload.prepare_evidence()
        workload.rows = rows  # type: ignore[attr-defined]
        return workload

    return build


@pytest.fixture
def solve(set_up: Callable[..., Probe1D]) -> Callable[..., Probe1D]:
    """A workload whose first job has ended."""

    def run(levels: Mapping[str, Any], **more: Any) -> Probe1D:
        return finish(set_up(levels, **more))

    return run


def finish(workload: Probe1D) -> Probe1D:
    while not workload.done():
        workload.step(NullClock())
    return workload


@pytest.fixture
def run_to_end() -> Callable[[Probe1D], Probe1D]:
    return finish


@pytest.fixture
def write_problem(tmp_path: Path) -> Callable[..., Path]:
    """An .npz file in the documented format from a dense matrix [N, L] and labels [N] or [N, C]."""

    def write(dense: np.ndarray, labels: np.ndarray, /, name: str = "problem.npz", **replaced: Any) -> Path:
        rows, columns = np.nonzero(dense)
        arrays = {
            "indptr": np.concatenate([[0], np.cumsum(np.count_nonzero(dense, axis=1))]).astype(np.int64),
            "indices": columns.astype(np.int32),
            "values": dense[rows, columns].astype(np.float32),
            "shape": np.array(dense.shape),
            "labels" if labels.ndim == 1 else "labels_multihot": labels,
        }
        arrays |= replaced
        path = tmp_path / name
        np.savez(path, **{name: array for name, array in arrays.items() if array is not None})
        return path

    return write
