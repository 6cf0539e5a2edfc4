"""Metrics of a step, read at once or in rings of three."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch

from perfsweep.workloads.latentwire.training.metrics import NAMES, Metrics

CPU = torch.device("cpu")


def pushed(
    late: bool, steps: int, flush: bool = False
) -> tuple[list[dict[str, float]], Counter[str], Metrics]:
    rows: list[Any] = []
    counts: Counter[str] = Counter()
    metrics = Metrics(late, 3, CPU, torch.float64, rows.append, counts)
    for step in range(steps):
        metrics.push(torch.arange(8, dtype=torch.float64) + 10 * step, {"step": step})
    if flush:
        metrics.flush()
    return rows, counts, metrics


def expected(steps: int) -> list[dict[str, float]]:
    return [
        {"step": step, **{name: 10.0 * step + place for place, name in enumerate(NAMES)}}
        for step in range(steps)
    ]


@pytest.mark.parametrize(
    ("late", "steps", "flush", "arrived", "syncs"),
    [
        (False, 2, False, 2, 16),
        (True, 2, False, 0, 0),
        (True, 3, False, 3, 1),
        (True, 5, False, 3, 1),
        (True, 5, True, 5, 2),
        (True, 6, True, 6, 2),
        (True, 0, True, 0, 0),
    ],
)
def test_rows_arrive_at_once_or_when_the_ring_is_full(
    late: bool, steps: int, flush: bool, arrived: int, syncs: int
) -> None:
    rows, counts, metrics = pushed(late, steps, flush)
    assert all(row.pop("device_busy") >= 0 for row in rows)
    assert rows == expected(arrived)
    assert counts["syncs"] == syncs
    assert list(metrics.history) == [row["loss"] for row in expected(arrived)]


def test_the_loss_is_the_sixth_of_eight() -> None:
    assert NAMES == ("tf", "first", "kce", "kd", "extra", "loss", "grad_norm", "skipped")
