"""Trainings with any fields of `Parts`, closed after the test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tiny import BASELINE, Tiny, TinyConfig, Train, go_on

from perfsweep.workloads.api import Context, Device


@pytest.fixture
def train(tmp_path: Path) -> Iterator[Train]:
    """Trains with fields of `Parts`: ``train({"clip_norm": 0.1}, steps=2, batch_size=10, amp="fp16")``."""
    running: list[Tiny] = []

    def make(
        fields: dict[str, Any] | None = None,
        steps: int = 0,
        batch_size: int = 24,
        seed: int = 0,
        **levels: Any,
    ) -> Tiny:
        folder = tmp_path / f"tiny{len(running)}"
        folder.mkdir()
        context = Context(Device(cores=2, compiler=True), scratch_dir=folder, cache_dir=tmp_path, seed=seed)
        workload = Tiny(fields or {})
        running.append(workload)
        workload.setup(TinyConfig(batch_size), {**BASELINE, **levels}, context)
        go_on(workload, steps)
        return workload

    yield make
    for workload in running:
        workload.close()
