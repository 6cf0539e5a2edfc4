"""Metrics of a step, read at once or in rings of three."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from bare_arms import bare

from perfsweep.workloads.latentwire.training.metrics import NAMES


def pushed(late: bool, steps: int, flush: bool = False) -> tuple[list[dict[str, float]], Any]:
    rows: list[Any] = []
    made = bare({"sync": "late" if late else "chatty"}, log=rows.append, log_every=3)
    made.shape = SimpleNamespace(dtype=torch.float64)
    for step in range(steps):
        made.push(torch.arange(8, dtype=torch.float64) + 10 * step, {"step": step})
    if flush:
        made.flush()
    return rows, made


def expected(steps: int) -> list[dict[str, float]]:
    return [
        {"step": step, **{name: 10.0 * step + place for place, name in enumerate(NAMES)}}
        for step in range(steps)
    ]


@pytest.mark.parametrize(
    ("late", "steps", "flush", "arrived", "syncs"),
    [(False, 2, False, 2, 16), (True, 5, False, 3, 1), (True, 5, True, 5, 2), (True, 0, True, 0, 0)],
)
def test_rows_arrive_at_once_or_when_the_ring_is_full(
    late: bool, steps: int, flush: bool, arrived: int, syncs: int
) -> None:
    rows, made = pushed(late, steps, flush)
    assert all(row.pop("device_busy") >= 0 for row in rows)
    assert rows == expected(arrived)
    assert made.counts["syncs"] == syncs
    assert list(made.history) == [row["loss"] for row in expected(arrived)]
